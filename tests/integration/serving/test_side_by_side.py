"""Versions that load side by side: at the start, after a restart, and within the memory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from integration.serving.model_configs import ask, model, wait_for, write_config
from integration.serving.server_processes import data_plane_of
from integration.serving.waiting_model import save_waiting
from waiting import wait_until

from hotrow.memory_bounds import memory_bounds


def test_a_restart_loads_models_side_by_side_and_opens_ports_then(
    tmp_path: Path, start_server: Any
) -> None:
    # Each load waits for the other: one after the other, none would end.
    began = [tmp_path / "a.began", tmp_path / "b.began"]
    a = save_waiting(tmp_path / "a", 1, began[0], began[1])
    b = save_waiting(tmp_path / "b", 1, began[1], began[0])
    path = write_config(tmp_path / "models.txt", model("a", a), model("b", b))
    flags = (f"--model_config_file={path}", "--load_timeout_seconds=5")
    server = start_server("", "", *flags)
    server.wait_ready()
    for file in began:
        file.unlink()
    os.kill(data_plane_of(server), signal.SIGKILL)
    server.wait_for_log("hotrow-server serves again")
    assert not [line for line in server.log if "failed to load" in line]
    assert (ask(server, "a"), ask(server, "b")) == ((4.0, 1), (4.0, 1))


def test_a_restart_loads_no_more_at_a_time_than_there_are_threads(
    tmp_path: Path, start_server: Any
) -> None:
    server, began, go = _waiting_pair(tmp_path, start_server, 0, "--num_load_threads=1")
    os.kill(data_plane_of(server), signal.SIGKILL)
    # The second load would begin within this time.
    _check_one_after_the_other(began, go, lambda: time.sleep(0.7))
    server.wait_for_log("hotrow-server serves again")
    assert (ask(server, "a"), ask(server, "b")) == ((4.0, 1), (4.0, 1))


def test_loads_side_by_side_have_room_together(tmp_path: Path, start_server: Any) -> None:
    left = min(bound.free_bytes + bound.active_file_bytes for bound in memory_bounds())
    server, began, go = _waiting_pair(tmp_path, start_server, int(0.6 * left))

    def waits() -> int:
        text = "and loads when those that are under way have ended"
        return sum(text in line for line in server.log)

    # A restart.
    before = waits()
    os.kill(data_plane_of(server), signal.SIGKILL)
    _check_one_after_the_other(began, go, lambda: wait_until(lambda: waits() > before))
    server.wait_for_log("hotrow-server serves again")
    assert (ask(server, "a"), ask(server, "b")) == ((4.0, 1), (4.0, 1))
    # Versions that come while it serves.
    again = waits()
    _remove(*began, go)
    _save_pair(tmp_path, 2, began, go, int(0.6 * left))
    _check_one_after_the_other(began, go, lambda: wait_until(lambda: waits() > again))
    for name in ("a", "b"):
        wait_for(server, name, {2: "AVAILABLE", 1: "END"})
    assert not [line for line in server.log if "failed to load" in line]


def _waiting_pair(
    tmp_path: Path, start_server: Any, needed: int, *flags: str
) -> tuple[Any, list[Path], Path]:
    """Returns a server of the models a and b, the files that their loads write, and wait for.

    The files are not there any more.
    """
    began, go = [tmp_path / "a.began", tmp_path / "b.began"], tmp_path / "go"
    go.touch()
    bases = _save_pair(tmp_path, 1, began, go, needed)
    models = [model(base.name, base) for base in bases]
    path = write_config(tmp_path / "models.txt", *models)
    server = start_server("", "", f"--model_config_file={path}", *flags)
    server.wait_ready()
    _remove(*began, go)
    return server, began, go


def _save_pair(
    tmp_path: Path, version: int, began: list[Path], go: Path, needed: int
) -> list[Path]:
    bases = [tmp_path / "a", tmp_path / "b"]
    return [
        save_waiting(base, version, file, go, needed)
        for base, file in zip(bases, began, strict=True)
    ]


def _check_one_after_the_other(
    began: list[Path], go: Path, wait_for_second: Callable[[], None]
) -> None:
    """Checks that the second load begins only after the first, which `go` ends."""
    wait_until(lambda: any(file.exists() for file in began))
    wait_for_second()
    assert sum(file.exists() for file in began) == 1
    go.touch()
    wait_until(lambda: all(file.exists() for file in began))


def _remove(*files: Path) -> None:
    for file in files:
        file.unlink(missing_ok=True)
