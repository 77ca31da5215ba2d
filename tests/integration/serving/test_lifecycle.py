"""Versions come and go on disk while a server runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_status_pb2, predict_pb2

WAIT_SECONDS = 60.0
X = np.array([[2.0]], np.float32)


@pytest.fixture
def source(testdata: Path) -> Path:
    return testdata / "saved_model_half_plus_two_cpu" / "00000123"


def _publish(source: Path, base: Path, version: str) -> None:
    """Copies a version to another name and renames it, as publishers should."""
    base.mkdir(exist_ok=True)
    shutil.copytree(source, base / f".{version}.tmp")
    (base / f".{version}.tmp").rename(base / version)


def _states(server: Any) -> dict[int, str]:
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = server.model
    response = server.models.GetModelStatus(request, timeout=30)
    name = get_model_status_pb2.ModelVersionStatus.State.Name
    return {entry.version: name(entry.state) for entry in response.model_version_status}


def _wait_for(server: Any, states: dict[int, str]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while (seen := _states(server)) != states:
        assert time.monotonic() < end, f"{seen}: " + "\n".join(server.log)
        time.sleep(0.05)


def test_a_new_version_takes_over_under_load_without_a_failed_request(
    source: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    _publish(source, base, "1")
    server = start_server("half", base)
    assert server.wait_ready() == (
        f"Serving half version 1: gRPC 127.0.0.1:{server.port}, REST 127.0.0.1:{server.rest_port}"
    )
    stop = threading.Event()
    versions: list[int] = []
    failures: list[Exception] = []

    def send() -> None:
        while not stop.is_set():
            try:
                response = server.predict(x=X)
            except grpc.RpcError as err:
                failures.append(err)
                return
            assert list(response.outputs["y"].float_val) == [3.0]
            versions.append(response.model_spec.version.value)

    clients = [threading.Thread(target=send) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        for version in (2, 3):
            _publish(source, base, str(version))
            ended = dict.fromkeys(range(1, version), "END")
            _wait_for(server, {version: "AVAILABLE", **ended})
    finally:
        stop.set()
        for client in clients:
            client.join()
    assert not failures
    assert set(versions) == {1, 2, 3}
    assert list(_states(server)) == [3, 2, 1]


def test_status_over_rest_lists_the_highest_version_first(
    source: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    for version in ("0007", "12"):
        _publish(source, base, version)
    (base / "notes").mkdir()
    (base / "13").write_text("a file, no directory")
    server = start_server("half", base)
    server.wait_ready()
    status, body = server.rest("/v1/models/half")
    ok = {"error_code": "OK", "error_message": ""}
    newest = {"version": "12", "state": "AVAILABLE", "status": ok}
    assert (status, json.loads(body)) == (200, {"model_version_status": [newest]})
    assert server.rest("/v1/models/half/versions/12") == (status, body)
    assert server.rest("/v1/models/half/labels/ignored") == (status, body)
    shutil.rmtree(base / "12")
    _wait_for(server, {12: "END", 7: "AVAILABLE"})
    assert server.predict(x=X).model_spec.version.value == 7


def test_a_version_that_cannot_be_loaded_leaves_the_older_one_serving(
    source: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    _publish(source, base, "1")
    flags = ("--max_num_load_retries=1", "--load_retry_interval_micros=1000")
    server = start_server("half", base, *flags)
    server.wait_ready()
    (base / "2").mkdir()
    server.wait_for_log("half: version 2 failed to load (attempt 2 of 2, gave up): ")
    _wait_for(server, {2: "END", 1: "AVAILABLE"})
    assert server.predict(x=X).model_spec.version.value == 1
    _, body = server.rest("/v1/models/half/versions/2")
    refused = json.loads(body)["model_version_status"][0]["status"]
    assert refused["error_code"] == "NOT_FOUND"
    assert "holds no SavedModel" in refused["error_message"]


def test_the_last_version_gone_means_not_found(
    source: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    _publish(source, base, "1")
    server = start_server("half", base)
    server.wait_ready()
    (base / "1").rename(base / "away")
    _wait_for(server, {1: "END"})
    with pytest.raises(grpc.RpcError) as caught:
        server.predict(x=X)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "Servable not found for request: Latest(half)"
    (base / "away").rename(base / "1")
    _wait_for(server, {1: "AVAILABLE"})
    assert server.predict(x=X).model_spec.version.value == 1


def test_a_missing_base_path_unloads_nothing(
    source: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    _publish(source, base, "1")
    server = start_server("half", base)
    server.wait_ready()
    base.rename(tmp_path / "away")
    time.sleep(0.5)  # several polls
    assert server.predict(x=X).model_spec.version.value == 1


def test_without_polling_the_disk_is_looked_at_once(
    source: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    _publish(source, base, "1")
    server = start_server("half", base, "--file_system_poll_wait_seconds=0")
    server.wait_ready()
    _publish(source, base, "2")
    time.sleep(0.5)
    assert _states(server) == {1: "AVAILABLE"}


def test_a_negative_time_between_looks_means_none_at_all(
    source: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    _publish(source, base, "1")
    server = start_server(
        "half", base, "--file_system_poll_wait_seconds=-1", "--prefer_tflite_model"
    )
    server.wait_for_log("--prefer_tflite_model=true has no effect")
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(5)  # it waits
    assert server.log[1:] == []
    assert server.terminate() == 0


def test_a_running_request_keeps_its_version(
    zoo_dir: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "zoo"
    _publish(zoo_dir / "1", base, "1")
    server = start_server("zoo", base)
    server.wait_ready()
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "zoo"
    request.model_spec.signature_name = "spin"
    request.inputs["turns"].CopyFrom(tf.make_tensor_proto(np.int64(2**60)))
    running = server.prediction.Predict.future(request, timeout=8)
    time.sleep(0.5)  # until the request runs
    _publish(zoo_dir / "1", base, "2")
    _wait_for(server, {2: "AVAILABLE", 1: "UNLOADING"})
    assert running.exception() is not None  # its deadline
    _wait_for(server, {2: "AVAILABLE", 1: "END"})
