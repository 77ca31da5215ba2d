"""TensorFlow Serving's own tests of its server, by name, driven and written for this one.

The names and the expectations are those of `tensorflow_model_server_test.py`; its tests of
TensorFlow Lite, TensorFlow Text and the profiler are left out, and so is the one of a Keras model
made under a MirroredStrategy: Keras 3 saves it so that no TensorFlow 1 session has its values.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import tensorflow as tf
from integration.serving.model_configs import model, write_config
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    input_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

NAME = "default"
RPC_SECONDS = 20.0
POLL_SECONDS = 1


@pytest.fixture
def tf1(half_plus_two: Any) -> Any:
    return half_plus_two


@pytest.fixture
def tf2(half_plus_two_tf2: Any) -> Any:
    return half_plus_two_tf2


def _example() -> input_pb2.Input:
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.append(2.0)
    request = input_pb2.Input()
    request.example_list.examples.append(example)
    return request


def _verify_spec(spec: Any, name: str, signature: str) -> None:
    assert (spec.name, spec.signature_name, spec.version.value) == (name, signature, 123)


def _verify_predict(
    server: Any,
    expected: float,
    *,
    name: str = "",
    signature: str = "serving_default",
    input_alias: str = "x",
    output_alias: str = "y",
    shape: tuple[int, ...] = (1,),
) -> None:
    """Sends requests with and without a filter of outputs."""
    for outputs in ([output_alias], []):
        request = predict_pb2.PredictRequest(output_filter=outputs)
        request.model_spec.name = name or server.model
        request.model_spec.signature_name = signature
        x = tf.make_tensor_proto(2.0, tf.float32, shape)
        request.inputs[input_alias].CopyFrom(x)
        reply = server.prediction.Predict(request, RPC_SECONDS)
        y = reply.outputs[output_alias]
        assert (y.dtype, list(y.float_val)) == (tf.float32.as_datatype_enum, [expected])
        _verify_spec(reply.model_spec, request.model_spec.name, signature)


def _verify_classify(server: Any) -> None:
    request = classification_pb2.ClassificationRequest(input=_example())
    request.model_spec.name = server.model
    request.model_spec.signature_name = "classify_x_to_y"
    reply = server.prediction.Classify(request, RPC_SECONDS)
    (classification,) = reply.result.classifications
    assert [entry.score for entry in classification.classes] == [3.0]
    _verify_spec(reply.model_spec, server.model, "classify_x_to_y")


def _verify_regress(server: Any) -> None:
    request = regression_pb2.RegressionRequest(input=_example())
    request.model_spec.name = server.model
    request.model_spec.signature_name = "regress_x_to_y"
    reply = server.prediction.Regress(request, RPC_SECONDS)
    assert [entry.value for entry in reply.result.regressions] == [3.0]
    _verify_spec(reply.model_spec, server.model, "regress_x_to_y")


def _verify_multi_inference(server: Any) -> None:
    request = inference_pb2.MultiInferenceRequest(input=_example())
    for method in ("regress", "classify"):
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name = server.model
        task.model_spec.signature_name = f"{method}_x_to_y"
    reply = server.prediction.MultiInference(request, RPC_SECONDS)
    regressed, classified = reply.results
    assert [entry.value for entry in regressed.regression_result.regressions] == [3.0]
    (classification,) = classified.classification_result.classifications
    assert [entry.score for entry in classification.classes] == [3.0]
    _verify_spec(regressed.model_spec, server.model, "regress_x_to_y")
    _verify_spec(classified.model_spec, server.model, "classify_x_to_y")


def testGetModelStatus(tf1: Any) -> None:
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = tf1.model
    (status,) = tf1.models.GetModelStatus(request, RPC_SECONDS).model_version_status
    assert (status.version, status.status.error_code) == (123, 0)


def testGetModelMetadata(tf1: Any) -> None:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = tf1.model
    reply = tf1.prediction.GetModelMetadata(request, RPC_SECONDS)
    _verify_spec(reply.model_spec, tf1.model, "")
    assert list(reply.metadata) == ["signature_def"]


def testClassify(tf1: Any) -> None:
    _verify_classify(tf1)


def testClassifyTf2(tf2: Any) -> None:
    _verify_classify(tf2)


def testRegress(tf1: Any) -> None:
    _verify_regress(tf1)


def testRegressTf2(tf2: Any) -> None:
    _verify_regress(tf2)


def testMultiInference(tf1: Any) -> None:
    _verify_multi_inference(tf1)


def testMultiInferenceTf2(tf2: Any) -> None:
    _verify_multi_inference(tf2)


def testPredictSavedModel(tf1: Any) -> None:
    _verify_predict(tf1, 3.0)


def testGoodModelConfig(testdata: Path, tmp_path: Path, start_server: Any) -> None:
    text = (testdata / "good_model_config.txt").read_text()
    folder = testdata / "saved_model_half_plus_two_cpu"
    text = text.replace("${TEST_HALF_PLUS_TWO_DIR}", str(folder))
    folder = testdata / "saved_model_half_plus_three"
    text = text.replace("${TEST_HALF_PLUS_THREE_DIR}", str(folder))
    path = tmp_path / "good_model_config.conf"
    path.write_text(text)
    server = start_server("", "", f"--model_config_file={path}")
    server.wait_ready()
    _verify_predict(server, 3.0, name="half_plus_two")
    _verify_predict(server, 4.0, name="half_plus_three")


def testBadModelConfig(testdata: Path, start_server: Any) -> None:
    server = start_server("", "", f"--model_config_file={testdata / 'bad_model_config.txt'}")
    server.wait_for_log("Error parsing text-format tensorflow.serving.ModelServerConfig")


def _reloading(
    testdata: Path, tmp_path: Path, start_server: Any, poll_seconds: int
) -> tuple[Any, Path]:
    two = testdata / "saved_model_half_plus_two_cpu"
    path = write_config(tmp_path / "model_config.txt", model("half_plus_two", two))
    poll = f"--model_config_file_poll_wait_seconds={poll_seconds}"
    server = start_server("", "", f"--model_config_file={path}", poll)
    server.wait_ready()
    _verify_predict(server, 3.0, name="half_plus_two")
    three = testdata / "saved_model_half_plus_three"
    write_config(path, model("half_plus_three", three))
    return server, path


def testModelConfigReload(testdata: Path, tmp_path: Path, start_server: Any) -> None:
    server, _ = _reloading(testdata, tmp_path, start_server, POLL_SECONDS)
    server.wait_for_log("half_plus_three: version 123 is available")
    _verify_predict(server, 4.0, name="half_plus_three")


def testModelConfigReloadWithZeroPollPeriod(
    testdata: Path, tmp_path: Path, start_server: Any
) -> None:
    server, _ = _reloading(testdata, tmp_path, start_server, 0)
    time.sleep(POLL_SECONDS + 1)  # enough for a look, should it want one
    _verify_predict(server, 3.0, name="half_plus_two")


def testClassifyREST(tf1: Any) -> None:
    body = {"signature_name": "classify_x_to_y", "examples": [{"x": 2.0}]}
    status, text = tf1.rest_predict(body, "classify")
    assert (status, json.loads(text)) == (200, {"results": [[["", 3.0]]]})


def testRegressREST(tf1: Any) -> None:
    body = {"signature_name": "regress_x_to_y", "examples": [{"x": 2.0}]}
    status, text = tf1.rest_predict(body, "regress")
    assert (status, json.loads(text)) == (200, {"results": [3.0]})


def testPredictREST(tf1: Any) -> None:
    status, text = tf1.rest_predict({"instances": [2.0, 3.0, 4.0]})
    assert (status, json.loads(text)) == (200, {"predictions": [3.0, 3.5, 4.0]})


def testPredictColumnarREST(tf1: Any) -> None:
    status, text = tf1.rest_predict({"inputs": [2.0, 3.0, 4.0]})
    assert (status, json.loads(text)) == (200, {"outputs": [3.0, 3.5, 4.0]})


def testGetStatusREST(tf1: Any) -> None:
    status, text = tf1.rest(f"/v1/models/{tf1.model}")
    ok = {"error_code": "OK", "error_message": ""}
    listed = [{"version": "123", "state": "AVAILABLE", "status": ok}]
    assert (status, json.loads(text)) == (200, {"model_version_status": listed})


def testGetModelMetadataREST(tf1: Any, testdata: Path) -> None:
    status, text = tf1.rest(f"/v1/models/{tf1.model}/metadata")
    expected = json.loads((testdata / "half_plus_two_model_metadata.json").read_text())
    expected["model_spec"]["name"] = tf1.model
    assert (status, json.loads(text)) == (200, expected)


@pytest.fixture(scope="module")
def flagged(
    testdata: Path, tmp_path_factory: pytest.TempPathFactory, start_shared_server: Any
) -> tuple[Any, Path]:
    """A server with the flags of the tests that only need one, and its socket."""
    path = tmp_path_factory.mktemp("socket") / "tf-serving.sock"
    flags = {
        "enable_batching": "true",
        "batching_parameters_file": testdata / "batching_config.txt",
        "grpc_channel_arguments": "grpc.max_connection_age_ms=2000,grpc.lb_policy_name=grpclb",
        "monitoring_config_file": testdata / "monitoring_config.txt",
        "grpc_socket_path": path,
    }
    base = testdata / "saved_model_half_plus_two_cpu"
    server = start_shared_server(NAME, base, *(f"--{n}={value}" for n, value in flags.items()))
    server.wait_ready()
    return server, path


def testPredictBatching(flagged: tuple[Any, Path]) -> None:
    _verify_predict(flagged[0], 3.0)


def testGoodGrpcChannelArgs(flagged: tuple[Any, Path]) -> None:
    _verify_predict(flagged[0], 3.0)


def testPrometheusEndpoint(flagged: tuple[Any, Path]) -> None:
    status, text = flagged[0].rest("/monitoring/prometheus/metrics")
    assert (status, "# TYPE" in text) == (200, True)


@dataclass(frozen=True)
class _AtSocket:
    model: str
    prediction: Any


def testPredictUDS(flagged: tuple[Any, Path]) -> None:
    with grpc.insecure_channel(f"unix:{flagged[1]}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        _verify_predict(_AtSocket(NAME, stub), 3.0)


def _save(root: Any, base: Path, signatures: Any = None) -> str:
    """Saves version 123 of a model and returns its configuration."""
    tf.saved_model.save(root, str(base / "00000123"), signatures=signatures)
    return model(base.name, base)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, start_shared_server: Any) -> Any:
    """A server of what `tf.saved_model.save` makes of three kinds of models."""
    folder = tmp_path_factory.mktemp("saved")
    one = tf.train.Checkpoint(v1=tf.Variable(3.0), v2=tf.Variable(2.0))
    one.f = tf.function(lambda x: {"y": one.v1 * one.v2 * x})
    concrete = one.f.get_concrete_function(tf.TensorSpec(None, tf.float32))
    spec = [tf.TensorSpec(None, tf.float32, name="x")]
    several = tf.train.Checkpoint()
    several.f = tf.function(lambda x: {"y": tf.constant(1.0)}, input_signature=spec)
    several.g = tf.function(lambda x: {"y": tf.constant(2.0)}, input_signature=spec)
    signatures = {"serving_default": several.f, "custom_signature_key": several.g}
    layers = tf.keras.layers
    sequential = tf.keras.Sequential(
        [layers.Input((1,), name="x"), layers.Lambda(lambda x: x, name="y")]
    )
    config = write_config(
        folder / "models.txt",
        _save(one, folder / "one", concrete),
        _save(several, folder / "several", signatures),
        _save(sequential, folder / "sequential"),
    )
    server = start_shared_server("", "", f"--model_config_file={config}")
    server.wait_ready()
    return server


def test_tf_saved_model_save(saved: Any) -> None:
    _verify_predict(saved, 12.0, name="one")


def test_tf_saved_model_save_multiple_signatures(saved: Any) -> None:
    _verify_predict(saved, 2.0, name="several", signature="custom_signature_key")
    _verify_predict(saved, 1.0, name="several")


# Keras 3 names the tensors of a model that is saved like this.
KERAS: dict[str, Any] = {"input_alias": "inputs", "output_alias": "output_0", "shape": (1, 1)}


def test_sequential_keras_saved_model_save(saved: Any) -> None:
    _verify_predict(saved, 2.0, name="sequential", **KERAS)
