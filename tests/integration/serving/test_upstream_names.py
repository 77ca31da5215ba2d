"""TensorFlow Serving's own tests of its server, by name, driven and written for this one.

The names and the expectations are those of `tensorflow_model_server_test.py`; its tests of
TensorFlow Lite, TensorFlow Text and the profiler are left out, and so is the one of a Keras model
made under a MirroredStrategy: Keras 3 saves it so that no TensorFlow 1 session has its values.
"""

from __future__ import annotations

import json
import time
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
    """Asks with and without a filter of outputs."""
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


def testPredictBatching(testdata: Path, start_server: Any) -> None:
    base = testdata / "saved_model_half_plus_two_cpu"
    parameters = f"--batching_parameters_file={testdata / 'batching_config.txt'}"
    server = start_server(NAME, base, "--enable_batching", parameters)
    server.wait_ready()
    _verify_predict(server, 3.0)


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


def testGoodGrpcChannelArgs(testdata: Path, start_server: Any) -> None:
    arguments = "grpc.max_connection_age_ms=2000,grpc.lb_policy_name=grpclb"
    server = start_server(
        NAME, testdata / "saved_model_half_plus_two_cpu", f"--grpc_channel_arguments={arguments}"
    )
    server.wait_ready()
    _verify_predict(server, 3.0)


def testPrometheusEndpoint(testdata: Path, start_server: Any) -> None:
    config = testdata / "monitoring_config.txt"
    server = start_server(
        NAME, testdata / "saved_model_half_plus_two_cpu", f"--monitoring_config_file={config}"
    )
    server.wait_ready()
    status, text = server.rest("/monitoring/prometheus/metrics")
    assert (status, "# TYPE" in text) == (200, True)


def testPredictUDS(testdata: Path, tmp_path: Path, start_server: Any) -> None:
    path = tmp_path / "tf-serving.sock"
    server = start_server(
        NAME, testdata / "saved_model_half_plus_two_cpu", f"--grpc_socket_path={path}"
    )
    server.wait_ready()
    with grpc.insecure_channel(f"unix:{path}") as channel:
        server.prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        _verify_predict(server, 3.0)


def test_tf_saved_model_save(tmp_path: Path, start_server: Any) -> None:
    root = tf.train.Checkpoint(v1=tf.Variable(3.0), v2=tf.Variable(2.0))
    root.f = tf.function(lambda x: {"y": root.v1 * root.v2 * x})
    concrete = root.f.get_concrete_function(tf.TensorSpec(None, tf.float32))
    tf.saved_model.save(root, str(tmp_path / "00000123"), concrete)
    server = start_server(NAME, tmp_path)
    server.wait_ready()
    _verify_predict(server, 12.0)


def test_tf_saved_model_save_multiple_signatures(tmp_path: Path, start_server: Any) -> None:
    spec = [tf.TensorSpec(None, tf.float32, name="x")]
    root = tf.train.Checkpoint()
    root.f = tf.function(lambda x: {"y": tf.constant(1.0)}, input_signature=spec)
    root.g = tf.function(lambda x: {"y": tf.constant(2.0)}, input_signature=spec)
    signatures = {"serving_default": root.f, "custom_signature_key": root.g}
    tf.saved_model.save(root, str(tmp_path / "00000123"), signatures=signatures)
    server = start_server(NAME, tmp_path)
    server.wait_ready()
    _verify_predict(server, 2.0, signature="custom_signature_key")
    _verify_predict(server, 1.0)


# Keras 3 names the tensors of a model that is saved like this.
KERAS: dict[str, Any] = {"input_alias": "inputs", "output_alias": "output_0", "shape": (1, 1)}


def test_sequential_keras_saved_model_save(tmp_path: Path, start_server: Any) -> None:
    layers = tf.keras.layers
    keras_model = tf.keras.Sequential(
        [layers.Input((1,), name="x"), layers.Lambda(lambda x: x, name="y")]
    )
    tf.saved_model.save(keras_model, str(tmp_path / "00000123"))
    server = start_server(NAME, tmp_path)
    server.wait_ready()
    _verify_predict(server, 2.0, **KERAS)
