"""Calls that pass through the executable to the control process: their number, and their end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import text_format
from integration.serving.cut_servers import paused
from integration.serving.model_configs import model, refusal, reload, states
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig
from waiting import wait_until

RELOADS = 12
FORWARDED = 64


@pytest.fixture
def server(base: Path, start_server: Any) -> Any:
    """A server of one model, `half`."""
    server = start_server("half", base)
    server.wait_ready()
    return server


def waiting_reload(server: Any, *models: str) -> grpc.Future:
    """Begins a reload without a deadline."""
    config = text_format.Parse(f"model_config_list {{ {' '.join(models)} }}", ModelServerConfig())
    request = model_management_pb2.ReloadConfigRequest(config=config)
    return server.models.HandleReloadConfigRequest.future(request)


def configured(server: Any) -> set[str]:
    """Returns the names of the models of a server."""
    listed = json.loads(server.rest("/v1/models")[1])
    return {name for name in _strings(listed) if name.startswith(("half", "empty"))}


def _strings(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {name for item in value.values() for name in _strings(item)}
    if isinstance(value, list):
        return {name for item in value for name in _strings(item)}
    return {value} if isinstance(value, str) else set()


def test_reloads_that_wait_leave_threads_for_others_and_give_theirs_back_when_cancelled(
    server: Any, base: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    models = [model("half", base)]
    reloads = []
    for number in range(RELOADS):
        models.append(model(f"empty{number}", tmp_path / "empty"))
        reloads.append(waiting_reload(server, *models))
        wait_until(lambda n=number: f"empty{n}" in configured(server), lambda: configured(server))
    more = [*models, model("empty", tmp_path / "empty")]
    code, text = refusal(lambda: reload(server, *more))
    assert (code, text.partition(";")[0]) == (
        "RESOURCE_EXHAUSTED",
        f"{RELOADS} reloads wait for their models",
    )
    assert states(server, "half") == {123: "AVAILABLE"}
    for future in reloads:
        assert not future.done()
        future.cancel()

    def is_taken() -> bool:
        future = waiting_reload(server, model("half", base))
        error = future.exception(timeout=30)
        return error is None or error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED

    wait_until(is_taken)
    again = [waiting_reload(server, model("half", base)) for _ in range(RELOADS)]
    for future in again:
        future.result(timeout=30)


def test_forwarded_calls_are_bounded(server: Any, base: Path) -> None:
    with paused(server):
        asked = [waiting_reload(server, model("half", base)) for _ in range(2 * FORWARDED)]
        wait_until(lambda: sum(future.done() for future in asked) == FORWARDED)
        refused = [future.code() for future in asked if future.done()]
        assert set(refused) == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        waiting = [future for future in asked if not future.done()]
        assert _is_refused(server, base)
        # A call that the control process has not answered is cancelled, and makes room.
        waiting.pop().cancel()
        wait_until(lambda: not _is_refused(server, base))
        # Others go on.
        assert states(server, "half") == {123: "AVAILABLE"}
    taken = [future.exception(timeout=30) for future in waiting].count(None)
    assert RELOADS <= taken <= FORWARDED


def _is_refused(server: Any, base: Path) -> bool:
    """Asks for a reload while the control process is stopped."""
    code, _ = refusal(lambda: reload(server, model("half", base), timeout=0.2))
    return code == "RESOURCE_EXHAUSTED"
