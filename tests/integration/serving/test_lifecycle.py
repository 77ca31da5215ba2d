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
from integration.serving.model_configs import ask, model, publish, reload, states, wait_for
from tensorflow_serving.apis import predict_pb2

X = np.array([[2.0]], np.float32)


def test_a_new_version_takes_over_under_load_without_a_failed_request(
    two: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    publish(two, base, 1)
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
            publish(two, base, version)
            ended = dict.fromkeys(range(1, version), "END")
            wait_for(server, "half", {version: "AVAILABLE", **ended})
    finally:
        stop.set()
        for client in clients:
            client.join()
    assert not failures
    assert set(versions) == {1, 2, 3}
    assert list(states(server, "half")) == [3, 2, 1]


def test_status_over_rest_lists_the_highest_version_first(
    two: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    publish(two, base, "0007", 12)
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
    wait_for(server, "half", {12: "END", 7: "AVAILABLE"})
    assert server.predict(x=X).model_spec.version.value == 7


def test_a_version_that_cannot_be_loaded_leaves_the_older_one_serving(
    two: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    publish(two, base, 1)
    flags = ("--max_num_load_retries=1", "--load_retry_interval_micros=1000")
    server = start_server("half", base, *flags)
    server.wait_ready()
    (base / "2").mkdir()
    server.wait_for_log("half: version 2 failed to load (attempt 2 of 2, gave up): ")
    wait_for(server, "half", {2: "END", 1: "AVAILABLE"})
    assert server.predict(x=X).model_spec.version.value == 1
    _, body = server.rest("/v1/models/half/versions/2")
    refused = json.loads(body)["model_version_status"][0]["status"]
    assert refused["error_code"] == "NOT_FOUND"
    assert "holds no SavedModel" in refused["error_message"]


def test_the_last_version_gone_means_not_found(
    two: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    publish(two, base, 1)
    server = start_server("half", base)
    server.wait_ready()
    (base / "1").rename(base / "away")
    wait_for(server, "half", {1: "END"})
    with pytest.raises(grpc.RpcError) as caught:
        server.predict(x=X)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "Servable not found for request: Latest(half)"
    (base / "away").rename(base / "1")
    wait_for(server, "half", {1: "AVAILABLE"})
    assert server.predict(x=X).model_spec.version.value == 1


def test_other_files_of_a_version_and_a_missing_base_path_change_nothing(
    two: Path, testdata: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    base.mkdir()
    (base / "1").symlink_to(two)
    server = start_server("half", base)
    server.wait_ready()
    (tmp_path / "new").symlink_to(testdata / "saved_model_half_plus_three" / "00000123")
    (tmp_path / "new").replace(base / "1")
    time.sleep(0.5)  # several polls
    assert list(server.predict(x=X).outputs["y"].float_val) == [3.0]
    base.rename(tmp_path / "away")
    time.sleep(0.5)  # several polls
    assert server.predict(x=X).model_spec.version.value == 1


def test_without_polling_each_base_path_is_looked_at_once(
    two: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    publish(two, base, 1)
    server = start_server("half", base, "--file_system_poll_wait_seconds=0")
    server.wait_ready()
    publish(two, base, 2)
    # A reload returns when the versions of its new base paths serve.
    publish(two, tmp_path / "second", 7)
    reload(server, model("half", base), model("second", tmp_path / "second"))
    assert ask(server, "second") == (3.0, 7)
    publish(two, tmp_path / "second", 8)
    time.sleep(0.5)
    assert states(server, "half") == {1: "AVAILABLE"}
    assert states(server, "second") == {7: "AVAILABLE"}
    reload(server, model("half", tmp_path / "second"))
    wait_for(server, "half", {8: "AVAILABLE", 1: "END"})


def test_a_negative_time_between_looks_means_none_at_all(
    two: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "model"
    publish(two, base, 1)
    server = start_server(
        "half", base, "--file_system_poll_wait_seconds=-1", "--prefer_tflite_model"
    )
    server.wait_for_log("--prefer_tflite_model=true has no effect")
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(3)  # it waits
    assert [line for line in server.log[1:] if "is removed" not in line] == []  # what others left
    assert server.terminate() == 0


def test_a_running_request_keeps_its_version(
    zoo_dir: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "zoo"
    publish(zoo_dir / "1", base, 1)
    server = start_server("zoo", base)
    server.wait_ready()
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "zoo"
    request.model_spec.signature_name = "spin"
    request.inputs["turns"].CopyFrom(tf.make_tensor_proto(np.int64(2**60)))
    running = server.prediction.Predict.future(request, timeout=40)
    time.sleep(0.5)  # until the request runs
    publish(zoo_dir / "1", base, 2)
    wait_for(server, "zoo", {2: "AVAILABLE", 1: "UNLOADING"})
    assert running.exception() is not None  # its deadline
    wait_for(server, "zoo", {2: "AVAILABLE", 1: "END"})
