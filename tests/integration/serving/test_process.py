"""The server as a process: how it starts, how it refuses to, how it ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2


@pytest.fixture
def base(testdata: Path) -> Path:
    return testdata / "saved_model_half_plus_two_cpu"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_with_exit_code_0(base: Path, start_server: Any, number: int) -> None:
    server = start_server("half", base)
    server.wait_ready()
    assert server.terminate(number) == 0
    assert "half: version 123 is unloaded" in server.log
    assert not any("Traceback" in line for line in server.log)


def test_running_requests_end_before_the_process_does(zoo_dir: Path, start_server: Any) -> None:
    server = start_server("zoo", zoo_dir)
    server.wait_ready()
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "zoo"
    request.model_spec.signature_name = "spin"
    turns = 1_000_000
    request.inputs["turns"].CopyFrom(tf.make_tensor_proto(np.int64(turns)))
    running = server.prediction.Predict.future(request, timeout=60)
    time.sleep(0.3)  # until the request runs
    assert not running.done()
    assert server.terminate() == 0
    assert list(running.result().outputs["turned"].int64_val) == [turns]


@pytest.mark.parametrize("flag", ["port", "rest_api_port"])
def test_a_port_in_use_is_one_line_and_exit_code_1(
    base: Path, start_server: Any, flag: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = start_server("half", base, f"--{flag}={port}")
        assert server.wait_exit() == 1
    assert server.log[-1] == (
        f"Error: --{flag} {port} cannot be used: Address already in use; choose another port"
    )


def test_a_second_server_does_not_share_a_port(base: Path, start_server: Any) -> None:
    first = start_server("half", base)
    first.wait_ready()
    second = start_server("half", base, f"--port={first.port}")
    assert second.wait_exit() == 1
    assert f"--port {first.port} cannot be used" in second.log[-1]


def test_a_missing_base_path_is_one_line_and_exit_code_1(tmp_path: Path, start_server: Any) -> None:
    server = start_server("half", tmp_path / "nowhere")
    assert server.wait_exit() == 1
    assert server.log[-1].startswith(
        f"Error: Could not find base path {tmp_path}/nowhere for servable half; "
    )


def test_a_relative_base_path_is_resolved(
    testdata: Path, start_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    relative = os.path.relpath(testdata / "saved_model_half_plus_two_cpu")
    server = start_server("half", Path(relative))
    assert server.wait_ready().startswith("Serving half version 123: ")


def test_without_a_version_it_waits_for_one(base: Path, tmp_path: Path, start_server: Any) -> None:
    server = start_server("half", tmp_path)
    server.wait_for_log(f"No versions of servable half found under base path {tmp_path}")
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", server.port)) != 0
    shutil.copytree(base / "00000123", tmp_path / "tmp")
    (tmp_path / "tmp").rename(tmp_path / "5")
    assert server.wait_ready().startswith("Serving half version 5: ")


def test_a_signal_ends_the_wait_for_a_version(tmp_path: Path, start_server: Any) -> None:
    server = start_server("half", tmp_path)
    server.wait_for_log("No versions of servable half")
    assert server.terminate() == 0


def test_a_first_version_that_cannot_be_loaded_ends_it(tmp_path: Path, start_server: Any) -> None:
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "saved_model.pb").write_bytes(b"no protobuf at all")
    server = start_server("half", tmp_path, "--max_num_load_retries=0")
    assert server.wait_exit() == 1
    assert server.log[-1].startswith(
        "Error: Failed to start server. Error: 1 model(s) did not become available: "
        "{{{name: half version: 3} due to error: "
    )


def test_a_flag_that_is_not_built_yet_is_named(base: Path, start_server: Any) -> None:
    server = start_server("half", base, "--enable-batching")
    assert server.wait_exit() == 2
    assert server.log[-1] == (
        "Error: --enable_batching=true is not built yet; leave it out, or at its default false"
    )


def test_a_flag_that_is_not_built_yet_may_have_its_default(base: Path, start_server: Any) -> None:
    server = start_server("half", base, "--enable_batching=false", "--model-config-file=")
    server.wait_ready()


def test_one_port_for_both_wires_is_refused(base: Path, start_server: Any) -> None:
    server = start_server("half", base, "--port=9000", "--rest_api_port=9000")
    assert server.wait_exit() == 2
    assert "--port and --rest_api_port are both 9000" in server.log[-1]
