"""gRPC beside the port: a Unix socket, settings of its server, the form of outputs, checks."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from integration.serving.grpc_calls import predict_request, refusal
from integration.serving.refused_starts import refused_start
from integration.serving.server_processes import data_plane_of
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)


@pytest.fixture
def socket_stub(tmp_path: Path) -> Iterator[Any]:
    """PredictionService at the socket in the folder of the test."""
    with grpc.insecure_channel(f"unix:{tmp_path}/socket") as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def _request(signature: str = "", **inputs: Any) -> predict_pb2.PredictRequest:
    return predict_request("half", signature, **(inputs or {"x": np.array([1.0], np.float32)}))


def test_a_socket_answers_beside_the_port(
    base: Path, tmp_path: Path, start_server: Any, socket_stub: Any
) -> None:
    path = tmp_path / "socket"
    server = start_server("half", base, f"--grpc_socket_path={path}")
    assert f"gRPC 127.0.0.1:{server.port} and unix:{path}, REST" in server.wait_ready()
    at_socket = socket_stub.Predict(_request(), timeout=20)
    assert at_socket == server.predict(x=np.array([1.0], np.float32))
    assert server.terminate() == 0
    assert not path.exists()


def test_a_socket_answers_alone(
    base: Path, tmp_path: Path, start_server: Any, socket_stub: Any
) -> None:
    server = start_server("half", base, "--port=0", f"--grpc_socket_path={tmp_path}/socket")
    assert f"version 123: gRPC unix:{tmp_path}/socket, REST" in server.wait_ready()
    assert list(socket_stub.Predict(_request(), timeout=20).outputs["y"].float_val) == [2.5]
    assert server.rest_predict({"instances": [1.0]})[0] == 200


def test_a_socket_that_a_dead_server_left_is_taken(
    base: Path, tmp_path: Path, start_server: Any, socket_stub: Any
) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    server = start_server("half", base, f"--grpc_socket_path={path}")
    server.wait_ready()
    assert socket_stub.Predict(_request(), timeout=20).outputs["y"].float_val == [2.5]


def test_a_socket_that_a_server_listens_on_is_not_taken(
    base: Path, tmp_path: Path, start_server: Any, socket_stub: Any
) -> None:
    path = tmp_path / "socket"
    start_server("half", base, f"--grpc_socket_path={path}").wait_ready()
    assert refused_start("half", base, f"--grpc_socket_path={path}")[-1] == (
        f"--grpc_socket_path {path} cannot be used: another process listens there; choose another "
        "path"
    )
    assert socket_stub.Predict(_request(), timeout=20).outputs["y"].float_val == [2.5]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("nowhere/socket", "there is no directory", id="its folder is missing"),
        pytest.param("file", "is something else than a socket", id="a file is there"),
        pytest.param("s" * 120, "at most 107 are allowed", id="it is too long"),
    ],
)
def test_a_socket_is_refused_when(base: Path, tmp_path: Path, path: str, text: str) -> None:
    (tmp_path / "file").write_text("")
    line = refused_start("half", base, f"--grpc_socket_path={tmp_path / path}")[-1]
    assert line.startswith(f"--grpc_socket_path {tmp_path / path} ")
    assert text in line


def _own_addresses() -> list[str]:
    """Returns IPv4 addresses of this machine, each of another interface."""
    found = ["127.0.0.1"]
    # There may be no other interface.
    with socket.socket(type=socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        found.append(probe.getsockname()[0])
    return found


def test_every_interface_is_listened_on(half_plus_two: Any) -> None:
    # A server at 127.0.0.1 alone would not answer at 127.0.0.2.
    for address in [*_own_addresses(), "127.0.0.2"]:
        with grpc.insecure_channel(f"{address}:{half_plus_two.port}") as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            assert list(stub.Predict(_request(), timeout=20).outputs["y"].float_val) == [2.5]


def test_without_port_and_socket_it_does_not_start(base: Path) -> None:
    line = refused_start("half", base, "--port=0")[-1]
    assert "--port is 0 and --grpc_socket_path is empty" in line


def test_settings_reach_grpcs_server_and_unknown_ones_do_not_matter(
    base: Path, start_server: Any
) -> None:
    plain = start_server("half", base)
    setting = "--grpc_channel_arguments=grpc.max_metadata_size=100000,nobody.knows=this"
    wide = start_server("half", base, setting)
    metadata = [("note", "n" * 50_000)]
    plain.wait_ready()
    with pytest.raises(grpc.RpcError) as refused:
        plain.prediction.Predict(_request(), timeout=20, metadata=metadata)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    wide.wait_ready()
    assert wide.prediction.Predict(_request(), timeout=20, metadata=metadata).outputs


def test_a_setting_without_a_value_is_refused(base: Path) -> None:
    line = refused_start("half", base, "--grpc_channel_arguments=grpc.max_metadata_size")[-1]
    assert "'grpc.max_metadata_size' is not of the form key=value" in line


def test_outputs_may_be_one_piece_of_bytes(base: Path, start_server: Any) -> None:
    server = start_server("half", base, "--enable_serialization_as_tensor_content")
    server.wait_ready()
    output = server.predict(x=np.array([1.0, 2.0], np.float32)).outputs["y"]
    assert output.tensor_content == np.array([2.5, 3.0], np.float32).tobytes()
    assert not output.float_val
    # REST reads the same outputs.
    assert server.rest_predict({"instances": [1.0]}) == (
        200,
        '{\n    "predictions": [2.5\n    ]\n}',
    )


@pytest.fixture
def checking(base: Path, tmp_path: Path, start_server: Any) -> Any:
    """A server that checks method names of signatures; one of the model's fits no method."""
    version = tmp_path / "model" / "1"
    shutil.copytree(base / "00000123", version)
    saved = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    signatures = saved.meta_graphs[0].signature_def
    signatures["odd"].CopyFrom(signatures["serving_default"])
    signatures["odd"].method_name = "nobody/knows"
    (version / "saved_model.pb").write_bytes(saved.SerializeToString())
    server = start_server("half", tmp_path / "model", "--enable_signature_method_name_check")
    server.wait_ready()
    return server


def test_the_check_refuses_signatures_of_another_kind(checking: Any) -> None:
    assert checking.predict(x=np.array([1.0], np.float32)).outputs["y"].float_val == [2.5]
    assert refusal(checking.prediction.Predict, _request("odd")) == (
        grpc.StatusCode.INTERNAL,
        "Expected prediction signature method_name to be one of {tensorflow/serving/predict, "
        "tensorflow/serving/classify, tensorflow/serving/regress}. Was: nobody/knows",
    )
    for method, kind, request in (
        ("Classify", "classification", classification_pb2.ClassificationRequest()),
        ("Regress", "regression", regression_pb2.RegressionRequest()),
    ):
        request.model_spec.name = "half"
        request.model_spec.signature_name = "odd"
        request.input.example_list.examples.add()
        assert refusal(getattr(checking.prediction, method), request) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            f"Expected {kind} signature method_name to be tensorflow/serving/{method.lower()}. "
            "Was: nobody/knows",
        )


def test_everything_is_there_again_after_the_executable_ended(
    base: Path, tmp_path: Path, start_server: Any, socket_stub: Any
) -> None:
    server = start_server(
        "half",
        base,
        f"--grpc_socket_path={tmp_path}/socket",
        "--enable_serialization_as_tensor_content",
    )
    server.wait_ready()
    os.kill(data_plane_of(server), signal.SIGKILL)
    server.wait_for_log("hotrow-server serves again")
    reply = socket_stub.Predict(_request(), timeout=20, wait_for_ready=True)
    assert reply.outputs["y"].tensor_content
