"""Which signatures warm up by themselves, and with what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from hotrow.protos import control_pb2
from hotrow.serving.warm_up import WarmUpOptions, warm_ups


class Model(tf.Module):
    """Signatures that read and that write, one of them deep in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.state = tf.Variable(1.0)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["a"], [1.0]), default_value=0.0
        )

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 3], tf.float32, "x"),
            tf.TensorSpec([None], tf.string, "word"),
        ]
    )  # type: ignore[untyped-decorator]
    def read(self, x: Any, word: Any) -> Any:
        score = tf.while_loop(lambda i, _: i < 2, lambda i, s: [i + 1, s + self.state], [0, x])[1]
        return {"y": score + self.table.lookup(word)[:, None]}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64, "x")])  # type: ignore[untyped-decorator]
    def write(self, x: Any) -> Any:
        def body(i: Any) -> Any:
            with tf.control_dependencies([self.state.assign_add(1.0)]):
                return [i + 1]

        return {"y": tf.while_loop(lambda i: i < tf.size(x), body, [0])[0]}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64, "x")])  # type: ignore[untyped-decorator]
    def speak(self, x: Any) -> Any:
        tf.print(x)
        return {"y": x + 1}


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the model."""
    path = tmp_path_factory.mktemp("model") / "1"
    model = Model()
    signatures = {"read": model.read, "write": model.write, "speak": model.speak}
    tf.saved_model.save(model, str(path), signatures=signatures)
    return path


def _warm_ups(version: Path, **options: Any) -> list[control_pb2.WarmUp]:
    return warm_ups(WarmUpOptions(**options), "m", version, ("serve",), pytest.fail)


def test_only_a_signature_that_changes_nothing_runs_by_itself(version: Path) -> None:
    (found,) = _warm_ups(version)
    request = predict_pb2.PredictRequest.FromString(found.request)
    assert request.model_spec.signature_name == "read"
    assert (found.may_fail, found.method) == (True, control_pb2.WarmUp.PREDICT)
    assert tf.make_ndarray(request.inputs["x"]).tolist() == [[0.0, 0.0, 0.0]]
    assert [dim.size for dim in request.inputs["word"].tensor_shape.dim] == [1]


def test_nothing_runs_when_it_is_not_asked_for(version: Path) -> None:
    assert _warm_ups(version, enabled=False) == []


def test_a_model_that_cannot_be_looked_into_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\xff\xff")
    said: list[str] = []
    assert warm_ups(WarmUpOptions(), "m", tmp_path, ("serve",), said.append) == []
    assert "does not warm up" in said[0]


def test_a_version_of_tensorflow_1_warms_up_too(shared: Path) -> None:
    data = shared / "data" / "tfserving_testdata"
    found = _warm_ups(data / "saved_model_half_plus_two_cpu" / "00000123")
    names = {
        predict_pb2.PredictRequest.FromString(one.request).model_spec.signature_name
        for one in found
    }
    assert "serving_default" in names
    counter = _warm_ups(data / "saved_model_counter" / "00000123")
    names = {
        predict_pb2.PredictRequest.FromString(one.request).model_spec.signature_name
        for one in counter
    }
    assert not {"incr_counter", "incr_counter_by", "reset_counter"} & names
