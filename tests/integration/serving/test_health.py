"""Health over gRPC (grpc.health.v1) and over REST."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from integration.serving.health_probe import NO_ANSWER, READY, probe
from integration.serving.server_processes import data_plane_of

# A HealthCheckResponse with the status SERVING.
SERVING = b"\x08\x01"
WAIT_SECONDS = 60.0


def _named(service: str) -> bytes:
    """Returns a serialized HealthCheckRequest: the name is field 1."""
    return b"\n" + bytes([len(service)]) + service.encode() if service else b""


def _until(condition: Any) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_grpc_health_says_serving_and_notifies_watchers_of_the_end(
    base: Path, start_server: Any
) -> None:
    server = start_server(
        "half", base, "--enable_grpc_healthcheck_service", "--drain_seconds=1000000"
    )
    server.wait_ready()
    check = server.channel.unary_unary("/grpc.health.v1.Health/Check")
    for service in ("", "ModelService", "PredictionService", "tensorflow.serving.ModelService"):
        assert check(_named(service), timeout=20) == SERVING
    with pytest.raises(grpc.RpcError) as refused:
        check(_named("Nobody"), timeout=20)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    watched: list[bytes] = []
    stream = server.channel.unary_stream("/grpc.health.v1.Health/Watch")(_named(""))

    def watch() -> None:
        with contextlib.suppress(grpc.RpcError):  # the server ends
            watched.extend(stream)

    watcher = threading.Thread(target=watch)
    watcher.start()
    _until(lambda: watched == [SERVING])
    assert server.terminate() == 0
    watcher.join()
    # NOT_SERVING, if the message came before the connection's end.
    assert watched[1:] in ([], [b"\x08\x02"])


def test_grpc_health_is_off_without_its_flag(half_plus_two: Any) -> None:
    check = half_plus_two.channel.unary_unary("/grpc.health.v1.Health/Check")
    with pytest.raises(grpc.RpcError) as refused:
        check(b"", timeout=20)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_rest_health_follows_the_model_and_grpcs_does_not(
    base: Path, tmp_path: Path, start_server: Any
) -> None:
    shutil.copytree(base / "00000123", tmp_path / "m" / "1")
    server = start_server("half", tmp_path / "m", "--enable_grpc_healthcheck_service")
    server.wait_ready()
    assert server.rest("/v1/health/live") == (200, '{"live": true}')
    assert server.rest("/v1/health/ready") == (200, '{"ready": true}')
    # Without versions the model is unloaded.
    (tmp_path / "m" / "1").rename(tmp_path / "elsewhere")
    _until(lambda: server.rest("/v1/health/ready")[0] == 503)
    _, body = server.rest("/v1/health/ready")
    assert json.loads(body) == {"ready": False, "models_without_an_available_version": ["half"]}
    assert server.rest("/v1/health/live")[0] == 200
    check = server.channel.unary_unary("/grpc.health.v1.Health/Check")
    for service in ("", "PredictionService"):
        assert check(_named(service), timeout=20) == SERVING
    (tmp_path / "elsewhere").rename(tmp_path / "m" / "2")
    _until(lambda: server.rest("/v1/health/ready")[0] == 200)


def test_rest_is_not_ready_while_the_executable_starts_again(base: Path, start_server: Any) -> None:
    server = start_server("half", base)
    server.wait_ready()
    os.kill(data_plane_of(server), signal.SIGKILL)
    answers = []

    def serves_again() -> bool:
        answers.append(probe(server))
        return any("hotrow-server serves again" in line for line in server.log)

    _until(serves_again)
    assert NO_ANSWER in answers
    assert all(answer in (READY, NO_ANSWER) for answer in answers)
    assert probe(server) == READY


def test_rest_health_answers_while_all_threads_are_busy(zoo_dir: Path, start_server: Any) -> None:
    server = start_server("zoo", zoo_dir, "--rest_api_num_threads=1", "--drain_seconds=0.1")
    server.wait_ready()
    busy = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    try:
        busy.request(
            "POST", "/v1/models/zoo:predict", b'{"signature_name": "spin", "inputs": %d}' % 2**60
        )
        time.sleep(0.5)  # until it runs
        assert server.rest("/v1/health/live")[0] == 200
        assert server.rest("/v1/health/ready")[0] == 200
    finally:
        busy.close()
