"""Warm-up: requests that a version answers before it serves."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from integration.serving.model_configs import model, write_config
from integration.serving.visits import save_visits, visits_of
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

X = np.array([1.0, 2.0], np.float32)
Write = Callable[..., None]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A version of `Visits`."""
    return save_visits(tmp_path_factory.mktemp("visits") / "1")


@pytest.fixture
def base(saved: Path, tmp_path: Path) -> Path:
    """A base path with a copy of it."""
    shutil.copytree(saved, tmp_path / "visits" / "1")
    return tmp_path / "visits"


def _predict_log(**spec: Any) -> prediction_log_pb2.PredictionLog:
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name = "another"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(X))
    return log


def _classify_log() -> prediction_log_pb2.PredictionLog:
    log = prediction_log_pb2.PredictionLog()
    request = log.classify_log.request
    request.model_spec.version.value = 77
    request.model_spec.signature_name = "classify"
    request.input.example_list.examples.add()
    return log


def _write(base: Path, records: Iterable[bytes]) -> None:
    path = base / "1" / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def test_the_requests_of_the_file_run_before_it_serves(base: Path, start_server: Any) -> None:
    records = [_predict_log(), _classify_log()]
    _write(base, [record.SerializeToString() for record in records])
    server = start_server("visits", base, "--num_request_iterations_for_warmup=3")
    server.wait_ready()
    assert visits_of(server) == 3 * (2 + 1000)


def test_nothing_runs_when_the_flag_says_so(base: Path, start_server: Any) -> None:
    _write(base, [_predict_log().SerializeToString()])
    server = start_server("visits", base, "--enable_model_warmup=false")
    server.wait_ready()
    assert visits_of(server) == 0


class Signatures(tf.Module):
    """Some read and some write, deep in loops and functions.

    A run that reads takes the next number of a sequence that is the same in each process, which
    shows how many there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = tf.Variable(1.0)
        self.written = tf.Variable(1.0)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["", "a"], [5.0, 7.0]), default_value=0.0
        )

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 3], tf.float32, "x"),
            tf.TensorSpec([None], tf.string, "word"),
        ]
    )  # type: ignore[untyped-decorator]
    def read(self, x: Any, word: Any) -> Any:
        score = tf.while_loop(lambda i, _: i < 2, lambda i, s: [i + 1, s + self.state], [0, x])[1]
        number = tf.random.uniform([], seed=7)
        return {"y": score + self.table.lookup(word)[:, None], "number": number}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64, "x")])  # type: ignore[untyped-decorator]
    def write(self, x: Any) -> Any:
        def body(i: Any) -> Any:
            with tf.control_dependencies([self.written.assign_add(1.0)]):
                return [i + 1]

        number = tf.random.uniform([], seed=7)
        return {"y": tf.while_loop(lambda i: i <= tf.size(x), body, [0])[0], "number": number}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64, "x")])  # type: ignore[untyped-decorator]
    def speak(self, x: Any) -> Any:
        tf.print("it spoke")
        return {"y": x + 1, "number": tf.random.uniform([], seed=7)}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64, "x")])  # type: ignore[untyped-decorator]
    def refuse(self, x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(False, ["always"])]):
            return {"y": x + 1, "number": tf.random.uniform([], seed=7)}


@pytest.fixture(scope="module")
def signatures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base path of `Signatures`."""
    base = tmp_path_factory.mktemp("signatures")
    module = Signatures()
    names = ("read", "write", "speak", "refuse")
    tf.saved_model.save(
        module, str(base / "1"), signatures={name: getattr(module, name) for name in names}
    )
    return base


@pytest.fixture(scope="module")
def cold(signatures: Path, start_shared_server: Any) -> Any:
    """A server of it that warms nothing up."""
    server = start_shared_server("cold", signatures, "--enable_model_warmup=false")
    server.wait_ready()
    return server


@pytest.fixture(scope="module")
def warm(signatures: Path, start_shared_server: Any) -> Any:
    """A server of it that warms up. Each test has a signature of its own."""
    server = start_shared_server("warm", signatures)
    server.wait_ready()
    return server


def _run(server: Any, signature: str, **inputs: Any) -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = server.model
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return server.prediction.Predict(request, timeout=30).outputs


def _numbers(server: Any, signature: str, count: int) -> list[float]:
    rows = {"x": [[0.0] * 3], "word": ["a"]} if signature == "read" else {"x": np.int64(1)}
    return [_run(server, signature, **rows)["number"].float_val[0] for _ in range(count)]


def test_without_a_file_signatures_that_change_nothing_run_twice(cold: Any, warm: Any) -> None:
    first, second, third = _numbers(cold, "read", 3)
    assert third not in (first, second)
    assert _numbers(warm, "read", 1) == [third]
    for server in (cold, warm):
        assert list(_run(server, "read", x=[[0.0] * 3], word=["a"])["y"].float_val) == [9.0] * 3


def test_without_a_file_signatures_that_change_something_do_not_run(cold: Any, warm: Any) -> None:
    assert not any("it spoke" in line for line in warm.log)
    for signature in ("write", "speak"):
        assert _numbers(cold, signature, 1) == _numbers(warm, signature, 1)
    warm.wait_for_log("it spoke")


def test_without_a_file_a_version_of_tensorflow_1_keeps_its_variables(
    testdata: Path, start_server: Any
) -> None:
    server = start_server("counter", testdata / "saved_model_counter")
    server.wait_ready()
    assert list(_run(server, "get_counter")["output"].float_val) == [0.0]


def test_without_a_file_a_signature_that_fails_keeps_no_version_from_serving(warm: Any) -> None:
    with pytest.raises(grpc.RpcError, match="always"):
        _run(warm, "refuse", x=np.int64(1))


def _failing() -> bytes:
    log = _predict_log()
    log.predict_log.request.output_filter.append("nothing")
    return log.SerializeToString()


def _session_run() -> bytes:
    log = prediction_log_pb2.PredictionLog()
    log.session_run_log.request.feed.add(name="x")
    return log.SerializeToString()


def _regression() -> bytes:
    log = prediction_log_pb2.PredictionLog()
    log.regress_log.request.model_spec.signature_name = "look"
    log.regress_log.request.input.example_list.examples.add()
    return log.SerializeToString()


def _several_inferences() -> bytes:
    log = prediction_log_pb2.PredictionLog()
    task = log.multi_inference_log.request.tasks.add(method_name="tensorflow/serving/regress")
    task.model_spec.name = "visits"
    task.model_spec.signature_name = "absent"
    log.multi_inference_log.request.input.example_list.examples.add()
    return log.SerializeToString()


WRONG: dict[str, list[bytes]] = {
    "one fails": [_failing()],
    "a regression": [_regression()],
    "several inferences": [_several_inferences()],
    "no record": [b"\xff\xff"],
    "another kind": [_session_run()],
    "too many": [_predict_log().SerializeToString()] * 1001,
    "damaged": [_predict_log().SerializeToString()],
}


@pytest.fixture(scope="module")
def failed(
    saved: Path, tmp_path_factory: pytest.TempPathFactory, start_shared_server: Any
) -> dict[str, str]:
    """Why the version of each model in `WRONG` does not serve; all are of one server."""
    folder = tmp_path_factory.mktemp("wrong")
    for name, records in WRONG.items():
        shutil.copytree(saved, folder / name / "1")
        _write(folder / name, records)
    path = folder / "damaged" / "1" / "assets.extra" / "tf_serving_warmup_requests"
    path.write_bytes(path.read_bytes()[:-2] + b"xx")
    config = write_config(folder / "models.txt", *(model(name, folder / name) for name in WRONG))
    flags = (f"--model_config_file={config}", "--max_num_load_retries=0")
    server = start_shared_server("", "", *flags)
    assert server.wait_exit() == 255
    # All of a model's lines begin with its name.
    return {
        name: "\n".join(line for line in server.log if line.startswith(f"{name}: "))
        for name in WRONG
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(
            "one fails", "output tensor alias not found in signature: nothing", id="one fails"
        ),
        pytest.param(
            "a regression", "No regression inputs found in SignatureDef", id="a regression"
        ),
        pytest.param(
            "several inferences",
            "Requested signature not found in model graph: absent",
            id="several inferences",
        ),
        pytest.param("no record", "Failed to parse warmup record: ", id="no record"),
        pytest.param(
            "another kind",
            "Unsupported log_type for warmup: 5 (session_run_log)",
            id="another kind",
        ),
        pytest.param(
            "too many", "Number of warmup records exceeds the maximum (1000) at ", id="too many"
        ),
    ],
)
def test_a_version_whose_warm_up_fails_does_not_serve(
    failed: dict[str, str], name: str, text: str
) -> None:
    assert text in failed[name]


def test_a_damaged_file_fails_the_load(failed: dict[str, str]) -> None:
    assert "Please verify your warmup data is in TFRecord format." in failed["damaged"]


def test_a_version_that_does_not_warm_up_leaves_the_older_one(
    base: Path, saved: Path, start_server: Any
) -> None:
    server = start_server("visits", base, "--max_num_load_retries=0")
    server.wait_ready()
    new = base / ".2"
    shutil.copytree(saved, new)
    extra = new / "assets.extra"
    extra.mkdir()
    with tf.io.TFRecordWriter(str(extra / "tf_serving_warmup_requests")) as writer:
        writer.write(_failing())
    new.rename(base / "2")
    server.wait_for_log("version 2 failed to load")
    assert server.predict(x=X).model_spec.version.value == 1
    with pytest.raises(grpc.RpcError):
        server.predict(y=X)
