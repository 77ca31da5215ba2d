"""The server as a process: how it starts, how it refuses to, how it ends."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from integration.serving.cut_servers import private_folder
from integration.serving.refused_starts import refused_start
from integration.serving.server_processes import control_of, data_plane_of
from tensorflow_serving.apis import predict_pb2
from waiting import wait_until


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
    turns = 150_000
    request.inputs["turns"].CopyFrom(tf.make_tensor_proto(np.int64(turns)))
    running = server.prediction.Predict.future(request, timeout=60)
    time.sleep(0.3)  # until the request runs
    assert not running.done()
    assert server.terminate() == 0
    assert list(running.result().outputs["turned"].int64_val) == [turns]


def test_requests_over_rest_and_grpc_have_one_time_to_end(zoo_dir: Path, start_server: Any) -> None:
    drain_seconds = 5
    server = start_server("zoo", zoo_dir, f"--drain_seconds={drain_seconds}")
    server.wait_ready()
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "zoo"
    request.model_spec.signature_name = "spin"
    request.inputs["turns"].CopyFrom(tf.make_tensor_proto(np.int64(2**60)))
    running = server.prediction.Predict.future(request, timeout=60)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.rest_port)) as rest:
        body = b'{"signature_name": "spin", "inputs": %d}' % 2**60
        rest.request("POST", "/v1/models/zoo:predict", body)
        time.sleep(0.5)  # until both run
        began = time.monotonic()
        assert server.terminate() == 0
    assert drain_seconds <= time.monotonic() - began < 2 * drain_seconds
    assert running.exception() is not None


def test_the_next_start_removes_what_a_killed_supervisor_left(
    base: Path, start_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        monkeypatch.setenv("TMPDIR", temporary)
        killed = start_server("half", base)
        killed.wait_ready()
        left, processes = private_folder(killed), (control_of(killed), data_plane_of(killed))
        killed.terminate(signal.SIGKILL)
        wait_until(lambda: not any(Path(f"/proc/{process}").exists() for process in processes))
        assert left.is_dir()
        running = start_server("half", base)
        running.wait_ready()
        assert not left.exists()
        assert f"{left}, which a server that was killed left, is removed" in running.log
        used = private_folder(running)
        another = start_server("half", base)
        another.wait_ready()
        assert used.is_dir()
        assert running.rest_predict({"instances": [1.0]})[0] == 200
        assert running.terminate() == another.terminate() == 0
        assert list(Path(temporary).iterdir()) == []


def test_tensorflow_is_in_the_process_that_answers_alone(base: Path, start_server: Any) -> None:
    server = start_server("half", base)
    server.wait_ready()
    assert server.rest_predict({"instances": [1.0]})[0] == 200
    processes = (data_plane_of(server), control_of(server), server.process.pid)
    mapped = ["libtensorflow" in Path(f"/proc/{one}/maps").read_text() for one in processes]
    assert mapped == [True, False, False]


@pytest.mark.parametrize("flag", ["port", "rest_api_port"])
def test_a_port_in_use_is_one_line_and_exit_code_255(
    base: Path, start_server: Any, flag: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = start_server("half", base, f"--{flag}={port}")
        assert server.wait_exit() == 255
    assert server.log[-1] == (
        f"Failed to start server. Error: --{flag} {port} cannot be used: Address already in use; "
        "choose another port"
    )


def test_a_second_server_does_not_share_a_port(base: Path, half_plus_two: Any) -> None:
    port = half_plus_two.port
    assert f"--port {port} cannot be used" in refused_start("half", base, f"--port={port}")[-1]


def test_a_missing_base_path_is_waited_for(base: Path, tmp_path: Path, start_server: Any) -> None:
    later = tmp_path / "later"
    server = start_server("half", later)
    server.wait_for_log(
        f"Could not find base path {later} for servable half with error No such file or directory"
    )
    shutil.copytree(base, tmp_path / "copy")
    (tmp_path / "copy").rename(later)
    assert server.wait_ready().startswith("Serving half version 123: ")


def test_neither_base_path_nor_config_file_ends_it(start_server: Any) -> None:
    server = start_server("half", "")
    assert server.wait_exit() == 255
    assert server.log[-1] == (
        "Failed to start server. Error: Both server_options.model_base_path and "
        "server_options.model_config_file are empty!"
    )


def test_a_value_that_cannot_be_read_shows_the_usage_and_ends_with_255(
    base: Path, start_server: Any
) -> None:
    server = start_server("half", base, "--max_num_load_retries=many")
    assert server.wait_ready().startswith("Usage: platform serve")
    assert server.wait_exit() == 255
    assert server.log[-1].startswith(
        "Error: Invalid value for '--max_num_load_retries': 'many' is not a valid integer"
    )


def test_an_unknown_flag_is_named_and_left_alone(base: Path, start_server: Any) -> None:
    server = start_server("half", base, "--no_such_flag=7")
    server.wait_ready()
    assert server.log[0] == "unknown argument: --no_such_flag=7 (see 'platform serve --help')"


NO_LITE = "TensorFlow Lite models are not run, saved_model.pb is used"
COMPILED = "functions to be compiled always are"
INEFFECTIVE = {
    "--enable_profiler=0": "there is no profiler service",
    "--flush_filesystem_caches=false": "local file systems have no such cache",
    "--num_tflite_pools=3": NO_LITE,
    "--prefer_tflite_model=true": NO_LITE,
    "--remove_unused_fields_from_bundle_metagraph=false": "whole graphs are never kept",
    "--skip_initialize_tpu=true": "there are no TPUs",
    "--thread_pool_factory_config_file=pools.txt": "runs have TensorFlow's own threads",
    "--xla_cpu_compilation_enabled=true": COMPILED,
    "--xla_gpu_compilation_enabled=1": COMPILED,
}


def test_each_flag_without_effect_is_named_once(base: Path, start_server: Any) -> None:
    at_default = "--num_tflite_interpreters_per_pool=1"
    server = start_server("half", base, *INEFFECTIVE, at_default)
    server.wait_ready()
    named = [line for line in server.log if "has no effect" in line]
    assert sorted(named) == [f"{flag} has no effect: {why}" for flag, why in INEFFECTIVE.items()]
    assert list(server.predict(x=np.array([1.0], np.float32)).outputs["y"].float_val) == [2.5]


def _platforms(path: Path, config: str) -> str:
    """Writes a PlatformConfigMap and returns the flag that names it."""
    adapter = "type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig"
    path.write_text(
        'platform_configs { key: "tensorflow" value { source_adapter_config { '
        f"[{adapter}] {{ legacy_config {{ {config} }} }} }} }} }}"
    )
    return f"--platform_config_file={path}"


def test_a_platform_config_file_takes_the_place_of_flags(
    base: Path, tmp_path: Path, start_server: Any
) -> None:
    platforms = _platforms(
        tmp_path / "platforms.txt", "batching_parameters { max_batch_size { value: 2 } }"
    )
    server = start_server("half", base, platforms, "--saved_model_tags=nobodys")
    server.wait_ready()
    taken = "--saved_model_tags has no effect: --platform_config_file takes its place"
    assert taken in server.log
    assert list(server.predict(x=np.ones(2, np.float32)).outputs["y"].float_val) == [2.5, 2.5]
    with pytest.raises(grpc.RpcError) as refused:
        server.predict(x=np.ones(3, np.float32))
    assert refused.value.details() == "Task size 3 is larger than maximum input batch size 2"


def test_sessions_have_the_configuration_of_a_platform_config_file(
    base: Path, tmp_path: Path, start_server: Any
) -> None:
    session = 'session_config { experimental { executor_type: "an unheard-of executor" } }'
    platforms = _platforms(tmp_path / "platforms.txt", session)
    server = start_server("half", base, platforms, "--max_num_load_retries=0")
    assert server.wait_exit() == 255
    assert "an unheard-of executor" in server.log[-1]


def test_three_ways_to_choose_threads_are_one_too_many(base: Path) -> None:
    flags = [f"--tensorflow_{kind}_parallelism=1" for kind in ("session", "intra_op", "inter_op")]
    assert refused_start("half", base, *flags)[-1].startswith(
        "Either configure server_options.tensorflow_session_parallelism or "
    )


def test_sessions_have_the_configuration_of_a_file(
    base: Path, tmp_path: Path, start_server: Any
) -> None:
    path = tmp_path / "session.txt"
    path.write_text('experimental { executor_type: "an unheard-of executor" }')
    flags = (f"--tensorflow_session_config_file={path}", "--max_num_load_retries=0")
    server = start_server("half", base, *flags)
    assert server.wait_exit() == 255
    assert "an unheard-of executor" in server.log[-1]


def test_a_session_configuration_that_is_none_ends_it(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "session.txt"
    path.write_text("inter_op: 3")
    log = refused_start("half", base, f"--tensorflow_session_config_file={path}")
    assert log[-2].startswith("Error parsing text-format tensorflow.ConfigProto: 1:1 :")
    assert log[-1] == f"Invalid protobuf file: '{path}'"


def test_a_relative_base_path_is_resolved(
    base: Path, start_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    relative = os.path.relpath(base)
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
    assert server.wait_exit() == 255
    assert server.log[-1].startswith(
        "Failed to start server. Error: 1 model(s) did not become available: "
        "{{{name: half version: 3} due to error: "
    )
    assert server.log[-1].endswith("}, }")


def test_one_port_for_both_wires_is_refused(base: Path) -> None:
    line = refused_start("half", base, "--port=9000", "--rest_api_port=9000")[-1]
    assert "--port and --rest_api_port are both 9000" in line


def test_the_versions_are_printed(start_server: Any) -> None:
    server = start_server("half", "", "--version")
    assert server.wait_ready().startswith("TensorFlow ModelServer: hotrow ")
    assert server.process.stdout.readline() == f"TensorFlow Library: {tf.__version__}\n"
    assert server.wait_exit() == 0


def test_the_graph_is_found_by_its_tags(base: Path, start_server: Any) -> None:
    flags = ("--saved_model_tags=serve,gpu", "--max_num_load_retries=0")
    server = start_server("half", base, *flags)
    assert server.wait_exit() == 255
    assert "Could not find meta graph def matching supplied tags" in server.log[-1]
