"""The process behind `platform serve`: what happens when it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from integration.serving.model_configs import (
    ask,
    label,
    model,
    publish,
    refusal,
    reload,
    specific,
    states,
    wait_for,
    write_config,
)
from integration.serving.server_processes import control_of, data_plane_of
from tensorflow_serving.apis import get_model_status_pb2, predict_pb2

WAIT_SECONDS = 60.0
LONG_TURNS = 1_000_000  # of a loop, a few seconds
X = np.array([1.0, 2.0], np.float32)


@pytest.fixture
def copied(base: Path, tmp_path: Path) -> Path:
    """A base path that a test may change, with version 123."""
    return Path(shutil.copytree(base, tmp_path / "half"))


def test_it_is_started_again_with_what_it_had(base: Path, start_server: Any) -> None:
    server = start_server("half", base)
    server.wait_ready()
    before = data_plane_of(server)
    os.kill(before, signal.SIGKILL)
    server.wait_for_log("hotrow-server ended (signal SIGKILL); starting it again")
    server.wait_for_log("hotrow-server serves again")
    reply = server.predict(x=X)
    assert list(reply.outputs["y"].float_val) == [2.5, 3.0]
    assert reply.model_spec.version.value == 123
    assert server.rest_predict({"instances": [1.0]})[0] == 200
    assert server.rest("/v1/models/half")[0] == 200
    assert data_plane_of(server) != before
    assert server.terminate() == 0


def test_a_version_that_cannot_be_loaded_again_leaves_the_others_serving(
    copied: Path, three: Path, tmp_path: Path, start_server: Any
) -> None:
    models = model("two", copied), model("three", three.parent)
    path = write_config(tmp_path / "models.txt", *models)
    server = start_server("ignored", "", f"--model_config_file={path}", "--max_num_load_retries=0")
    server.wait_ready()
    (copied / "00000123" / "saved_model.pb").unlink()
    os.kill(data_plane_of(server), signal.SIGKILL)
    server.wait_for_log("two: version 123 failed to load (attempt 1 of 1, gave up): ")
    server.wait_for_log("hotrow-server serves again")
    assert ask(server, "three") == (4.0, 123)
    wait_for(server, "two", {123: "END"})
    assert refusal(lambda: ask(server, "two")) == (
        "NOT_FOUND",
        "Servable not found for request: Latest(two)",
    )
    _, body = server.rest("/v1/models/two")
    status = json.loads(body)["model_version_status"][0]["status"]
    assert status["error_code"] == "NOT_FOUND"
    assert "Could not find SavedModel" in status["error_message"]


def test_a_version_that_could_not_be_loaded_again_serves_when_it_can(
    copied: Path, tmp_path: Path, start_server: Any
) -> None:
    server = start_server("half", copied, "--load_retry_interval_micros=100000")
    server.wait_ready()
    copied.rename(tmp_path / "away")
    os.kill(data_plane_of(server), signal.SIGKILL)
    server.wait_for_log("half: version 123 failed to load (attempt 1 of 6, next in 0.1 s): ")
    (tmp_path / "away").rename(copied)
    wait_for(server, "half", {123: "AVAILABLE"})
    assert list(server.predict(x=X).outputs["y"].float_val) == [2.5, 3.0]


def test_crashes_while_versions_load_lose_none_of_them(
    two: Path, tmp_path: Path, start_server: Any
) -> None:
    base = publish(two, tmp_path / "half", 1)
    every = "model_version_policy { all {} }"
    path = write_config(tmp_path / "models.txt", model("half", base, every))
    # A version that both crashes meet is tried again after this interval.
    flags = ("--num_load_threads=2", "--load_retry_interval_micros=1000000")
    server = start_server("half", "", f"--model_config_file={path}", *flags)
    server.wait_ready()
    for first in (2, 5):
        publish(two, base, *range(first, first + 3))
        server.wait_for_log(f"half: version {first + 2} is available")
        os.kill(data_plane_of(server), signal.SIGKILL)
    wait_for(server, "half", dict.fromkeys(range(7, 0, -1), "AVAILABLE"))
    for version in range(1, 8):
        assert ask(server, "half", version=version) == (3.0, version)


def test_nothing_outlives_the_process_that_started_all(base: Path, start_server: Any) -> None:
    server = start_server("half", base)
    server.wait_ready()
    processes = [data_plane_of(server), control_of(server)]
    server.terminate(signal.SIGKILL)
    end = time.monotonic() + WAIT_SECONDS
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_predictions_go_on_while_the_control_process_is_started_again(
    copied: Path, start_server: Any
) -> None:
    server = start_server("half", copied)
    server.wait_ready()
    data_plane, control = data_plane_of(server), control_of(server)
    refused: list[grpc.RpcError] = []
    answered = 0
    ending = threading.Event()

    def ask() -> None:
        nonlocal answered
        while not ending.is_set():
            try:
                assert list(server.predict(x=X).outputs["y"].float_val) == [2.5, 3.0]
                answered += 1
            except grpc.RpcError as err:
                refused.append(err)

    asking = threading.Thread(target=ask)
    asking.start()
    os.kill(control, signal.SIGKILL)
    server.wait_for_log("the control process ended (signal SIGKILL); predictions go on")
    server.wait_for_log("the control process serves again")
    ending.set()
    asking.join()
    assert refused == []
    assert answered > 100
    # It was found, not started again, and nothing was loaded once more.
    assert data_plane_of(server) == data_plane
    assert control_of(server) != control
    assert server.rest("/v1/models/half")[0] == 200
    assert server.rest_predict({"instances": [1.0]})[0] == 200
    # The new one is in charge: it swaps versions, and starts the executable again.
    publish(copied / "00000123", copied, 124)
    server.wait_for_log("half: version 123 is unloaded")
    assert server.predict(x=X).model_spec.version.value == 124
    os.kill(data_plane, signal.SIGKILL)
    server.wait_for_log("hotrow-server serves again")
    assert server.predict(x=X).model_spec.version.value == 124
    assert server.terminate() == 0


def test_versions_change_while_there_is_no_control_process(copied: Path, start_server: Any) -> None:
    server = start_server("half", copied)
    server.wait_ready()
    control = control_of(server)
    os.kill(control, signal.SIGSTOP)
    publish(copied / "00000123", copied, 124)
    os.kill(control, signal.SIGKILL)
    server.wait_for_log("the control process serves again")
    assert server.predict(x=X).model_spec.version.value == 124
    status = json.loads(server.rest("/v1/models/half")[1])["model_version_status"]
    assert [one["version"] for one in status] == ["124"]
    assert server.terminate() == 0


def test_what_was_configured_meanwhile_outlives_the_control_process(
    two: Path, three: Path, tmp_path: Path, start_server: Any
) -> None:
    base = publish(two, tmp_path / "half", 1, 2)
    path = write_config(tmp_path / "models.txt", model("half", base, specific(1, 2)))
    server = start_server("half", "", f"--model_config_file={path}")
    server.wait_ready()
    wait_for(server, "half", {2: "AVAILABLE", 1: "AVAILABLE"})
    labelled = model("half", base, specific(1, 2), label("stable", 1))
    reload(server, labelled, model("three", three.parent))
    path.write_text("improperly formatted file")
    data_plane = data_plane_of(server)
    os.kill(control_of(server), signal.SIGKILL)
    server.wait_for_log("the control process serves again")
    assert ask(server, "three") == (4.0, 123)
    assert ask(server, "half", label="stable") == (3.0, 1)
    assert ask(server, "half") == (3.0, 2)
    assert states(server, "half") == {2: "AVAILABLE", 1: "AVAILABLE"}
    assert data_plane_of(server) == data_plane
    assert server.terminate() == 0


def test_a_run_that_never_ends_does_not_keep_it(zoo_dir: Path, start_server: Any) -> None:
    server = start_server("zoo", zoo_dir, "--drain_seconds=0.5")
    server.wait_ready()
    data_plane = data_plane_of(server)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "zoo"
    request.model_spec.signature_name = "never"
    request.inputs["number"].CopyFrom(tf.make_tensor_proto(X))
    running = server.prediction.Predict.future(request)
    time.sleep(0.5)  # until it runs
    assert not running.done()
    assert server.terminate() == 0
    assert not Path(f"/proc/{data_plane}").exists()
    with pytest.raises(grpc.RpcError):
        running.result()


def test_many_clients_at_once_are_all_answered(half_plus_two: Any) -> None:
    """More of them than TF Serving would have threads."""
    requests = [half_plus_two.prediction.Predict.future(_half(i), timeout=60) for i in range(400)]
    answers = [list(request.result().outputs["y"].float_val) for request in requests]
    assert answers == [[i / 2 + 2] for i in range(400)]


def _half(number: int) -> predict_pb2.PredictRequest:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "half"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.array([number], np.float32)))
    return request


def test_more_than_may_run_at_once_are_refused_at_once(zoo_dir: Path, start_server: Any) -> None:
    server = start_server("zoo", zoo_dir, "--grpc_max_threads=2", "--drain_seconds=0")
    server.wait_ready()
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "zoo"
    request.model_spec.signature_name = "spin"
    request.inputs["turns"].CopyFrom(tf.make_tensor_proto(np.int64(2**60)))
    running = [server.prediction.Predict.future(request, timeout=60) for _ in range(2)]
    time.sleep(0.5)  # until they run
    with pytest.raises(grpc.RpcError) as refused:
        server.prediction.Predict(request, timeout=60)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    # What is not a prediction is answered all the same.
    status = get_model_status_pb2.GetModelStatusRequest()
    status.model_spec.name = "zoo"
    assert server.models.GetModelStatus(status, timeout=30).model_version_status[0].version == 1
    for future in running:
        assert not future.done()
        future.cancel()


def test_a_run_that_takes_longer_than_others_keeps_none_waiting(zoo: Any) -> None:
    """Short runs stay in the thread that takes the next request, and this one was short before."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "zoo"
    request.model_spec.signature_name = "spin"
    request.inputs["turns"].CopyFrom(tf.make_tensor_proto(np.int64(1)))
    for _ in range(20):
        # Without a deadline it may run in the thread of its request.
        zoo.prediction.Predict(request)
    request.inputs["turns"].CopyFrom(tf.make_tensor_proto(np.int64(LONG_TURNS)))
    long = zoo.prediction.Predict.future(request)
    time.sleep(0.2)  # until it runs
    for _ in range(10):
        assert list(zoo.predict(x=X).outputs["y"].float_val) == [1.0, 2.0]
    assert not long.done()
    assert list(long.result().outputs["turned"].int64_val) == [LONG_TURNS]


@pytest.mark.parametrize(
    "method", ["Nobody/Ask", "SessionService/SessionRun", "PredictionService/PredictStreamed"]
)
def test_a_method_that_nobody_has_is_unimplemented(half_plus_two: Any, method: str) -> None:
    call = half_plus_two.channel.unary_unary(f"/tensorflow.serving.{method}")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"", timeout=30)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
