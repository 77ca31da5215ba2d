"""A server whose model makes batches, and a model that shows which rows ran together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

WAIT_SECONDS = 60.0


# Longer than a test: a batch goes only when it is full.
NEVER_MICROS = 600_000_000


class Rows(tf.Module):
    """Answers each request with the batch that it was part of."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32, "x")])  # type: ignore[untyped-decorator]
    def look(self, x: Any) -> Any:
        count = tf.shape(x)[0]
        return {
            "x": tf.identity(x),
            "rows": tf.fill([count], count),
            "sum": tf.fill([count], tf.reduce_sum(x)),
            "total": tf.reduce_sum(x),
            "half": x[: count // 2],
        }

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64, "a"),
            tf.TensorSpec([None], tf.string, "b"),
        ]
    )  # type: ignore[untyped-decorator]
    def pair(self, a: Any, b: Any) -> Any:
        return {"b": tf.strings.join([b, tf.strings.as_string(a)])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])  # type: ignore[untyped-decorator]
    def count(self, x: Any) -> Any:
        """Returns how many batches ran so far."""
        return {"x": x + 0.0, "turn": tf.fill(tf.shape(x), self.runs.assign_add(1))}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "file")])  # type: ignore[untyped-decorator]
    def read(self, file: Any) -> Any:
        return {"text": tf.map_fn(tf.io.read_file, file)}

    @tf.function(input_signature=[])  # type: ignore[untyped-decorator]
    def nothing(self) -> Any:
        return {"x": tf.constant([1.0])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "inputs")])  # type: ignore[untyped-decorator]
    def classify(self, inputs: Any) -> Any:
        x = tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([1], tf.float32)})["x"]
        return {"scores": x + tf.cast(tf.shape(x)[0], tf.float32)}


class Batched:
    """Versions of the model in one server, each with batching parameters of its own."""

    def __init__(self, server: Any, base: Path, version: Path) -> None:
        self.server = server
        self._base = base
        self._source = version
        self._version = 1

    def add(self, parameters: str) -> None:
        """Serves one more version; requests go to it."""
        self._version += 1
        copy_version(self._source, self._base / ".new", parameters)
        (self._base / ".new").rename(self._base / str(self._version))
        self.server.wait_for_log(f"version {self._version} is available")

    def ask(self, request: predict_pb2.PredictRequest) -> Any:
        request.model_spec.version.value = self._version
        return self.server.prediction.Predict.future(request, timeout=WAIT_SECONDS)


def copy_version(version: Path, to: Path, parameters: str | None) -> None:
    """Makes a version's directory, with parameters if there are any."""
    shutil.copytree(version, to)
    if parameters is not None:
        (to / "batching_params.pbtxt").write_text(parameters)
