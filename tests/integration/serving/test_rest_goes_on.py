"""While there is no control process, predictions, status, metadata and health go on."""

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
import pytest
from integration.serving import model_configs
from integration.serving.cut_servers import metrics, paused, private_folder
from integration.serving.health_probe import READY, probe
from integration.serving.metrics_page import PATH, samples_of
from integration.serving.model_configs import model, publish, reload
from integration.serving.server_processes import control_of, data_plane_of
from tensorflow_serving.apis import get_model_status_pb2
from waiting import wait_until

from hotrow.protos import control_pb2
from hotrow.serving.data_plane.control_socket import ask

STATUS = "/v1/models/half"
STOPPED_SECONDS = 1.5


@pytest.fixture
def copied(base: Path, tmp_path: Path) -> Path:
    """A base path that a test may change, with version 123."""
    return Path(shutil.copytree(base, tmp_path / "half"))


class Asking:
    """A client that asks everything in turn between `with` and its end.

    Attributes:
        wrong: answers that were not as before.
        rounds: how often everything was answered as before.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self._before = self._answers()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.wrong: list[Any] = []
        self.rounds = 0

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _answers(self) -> list[Any]:
        server = self._server
        return [
            server.rest_predict({"instances": [1.0, 2.0]}),
            *(server.rest(f"{STATUS}{path}") for path in ("", "/versions/123", "/metadata")),
            server.rest("/v1/models"),
            server.rest("/v1/health/live"),
            probe(server),
            model_configs.states(server, "half"),
        ]

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                answers = self._answers()
            except (OSError, grpc.RpcError) as err:
                self.wrong.append(err)
                continue
            if answers == self._before:
                self.rounds += 1
            else:
                self.wrong.append(answers)


def states(server: Any) -> dict[str, str]:
    """Returns the state of each version, over REST."""
    listed = json.loads(server.rest(STATUS)[1])["model_version_status"]
    return {one["version"]: one["state"] for one in listed}


def test_everything_is_answered_while_the_control_process_is_stopped_and_started_again(
    copied: Path, tmp_path: Path, start_server: Any
) -> None:
    server = start_server("half", copied, metrics(tmp_path))
    server.wait_ready()
    data_plane, control = data_plane_of(server), control_of(server)
    with Asking(server) as asking:
        os.kill(control, signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        os.kill(control, signal.SIGKILL)
        server.wait_for_log("the control process ended (signal SIGKILL); predictions go on")
        server.wait_for_log("the control process serves again")
    assert asking.wrong == []
    assert asking.rounds > 10
    assert data_plane_of(server) == data_plane
    # The new one is in charge: REST learns of new versions, and has the page of metrics.
    publish(copied / "00000123", copied, 124)
    server.wait_for_log("half: version 123 is unloaded")
    wait_until(lambda: states(server) == {"124": "AVAILABLE", "123": "END"})
    metadata = json.loads(server.rest(f"{STATUS}/metadata")[1])
    assert metadata["model_spec"]["version"] == "124"
    state = 'hotrow_model_version_state{model_name="half",version="124",state="AVAILABLE"}'
    assert samples_of(server)[state] == 1
    # What it last sent outlives the executable.
    os.kill(data_plane, signal.SIGKILL)
    server.wait_for_log("hotrow-server serves again")
    assert states(server) == {"124": "AVAILABLE", "123": "END"}
    assert probe(server) == READY
    assert server.terminate() == 0


def test_the_page_of_metrics_needs_the_control_process(
    base: Path, tmp_path: Path, start_server: Any
) -> None:
    server = start_server("half", base, metrics(tmp_path))
    server.wait_ready()
    os.kill(control_of(server), signal.SIGKILL)
    wait_until(lambda: server.rest(PATH)[0] == 503)
    assert server.rest_predict({"instances": [1.0]})[0] == 200
    server.wait_for_log("the control process serves again")
    wait_until(lambda: server.rest(PATH)[0] == 200)


def test_a_reload_that_was_answered_is_what_rest_says(
    base: Path, three: Path, start_server: Any
) -> None:
    server = start_server("half", base)
    server.wait_ready()
    for _ in range(5):
        reload(server, model("half", base), model("three", three.parent))
        listed = json.loads(server.rest("/v1/models")[1])["models"]
        assert [one["name"] for one in listed] == ["half", "three"]
        assert server.rest("/v1/models/three")[0] == 200
        reload(server, model("half", base))
        listed = json.loads(server.rest("/v1/models")[1])["models"]
        assert [one["name"] for one in listed] == ["half"]
        # It was served: its versions are known until the end.
        assert server.rest("/v1/models/three")[0] == 200


def test_health_says_why_predictions_are_not_answered(base: Path, start_server: Any) -> None:
    server = start_server("half", base)
    server.wait_ready()
    versions = get_model_status_pb2.GetModelStatusResponse()
    versions.model_version_status.add(version=123, state="AVAILABLE")
    statuses = control_pb2.Statuses(notices='{"models_without_their_store": ["half"]}')
    statuses.models.add(name="half", configured=True, versions=versions)
    socket = private_folder(server) / "control"
    with paused(server):  # so that it sends nothing meanwhile
        ask(socket, control_pb2.Request(set_statuses=statuses), 20)
        assert probe(server) == (200, {"ready": True, "models_without_their_store": ["half"]})
        statuses.trouble = "hotrow-server does not answer"
        ask(socket, control_pb2.Request(set_statuses=statuses), 20)
        assert probe(server) == (503, {"ready": False, "reason": "hotrow-server does not answer"})
        statuses.models.add(name="other", configured=True)
        statuses.models.add(name="former")
        ask(socket, control_pb2.Request(set_statuses=statuses), 20)
        waiting = {"ready": False, "models_without_an_available_version": ["other"]}
        assert probe(server) == (503, waiting)
