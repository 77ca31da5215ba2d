"""An executable that runs and does not answer: it is noticed, and started again."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port
from integration.serving.cut_servers import metrics, paused
from integration.serving.health_probe import NO_ANSWER, READY, probe
from integration.serving.metrics_page import samples_of
from integration.serving.model_configs import ask, publish, wait_for
from integration.serving.refused_starts import refused_start
from integration.serving.server_processes import control_of, data_plane_of
from waiting import wait_until

SOON = ("--unready_after_seconds=1", "--restart_after_seconds=5")


def test_an_executable_that_hangs_is_not_ready_and_is_started_again(
    two: Path, tmp_path: Path, start_server: Any
) -> None:
    base = publish(two, tmp_path / "half", 1)
    port = free_port()  # of the control process, which hangs in no test
    server = start_server("half", base, *SOON, metrics(tmp_path), f"--admin_port={port}")
    server.wait_ready()
    before = data_plane_of(server)
    os.kill(before, signal.SIGSTOP)
    publish(two, base, 2)  # a call of the control process is under way, too
    wait_until(lambda: probe(server) == NO_ANSWER)
    wait_until(lambda: samples_of(server, port)["hotrow_server_is_silent{}"] == 1)
    server.wait_for_log("s: not ready; it is killed and started again after 5 s")
    server.wait_for_log("s; killing it")
    server.wait_for_log("hotrow-server ended (signal SIGKILL); starting it again")
    server.wait_for_log("hotrow-server serves again")
    wait_until(lambda: probe(server) == READY)
    wait_for(server, "half", {2: "AVAILABLE", 1: "END"})
    assert ask(server, "half") == (3.0, 2)
    assert data_plane_of(server) != before
    samples = samples_of(server, port)
    assert samples["hotrow_server_is_silent{}"] == 0
    assert samples["hotrow_server_restarts_total{}"] == 1
    assert server.terminate() == 0


def test_an_executable_that_goes_on_is_ready_again(base: Path, start_server: Any) -> None:
    server = start_server("half", base, "--unready_after_seconds=1", "--restart_after_seconds=0")
    server.wait_ready()
    before = data_plane_of(server)
    os.kill(before, signal.SIGSTOP)
    server.wait_for_log("s: not ready; it is not restarted")
    assert probe(server) == NO_ANSWER
    os.kill(before, signal.SIGCONT)
    server.wait_for_log("hotrow-server answers again")
    wait_until(lambda: probe(server) == READY)
    assert ask(server, "half") == (3.0, 123)
    assert data_plane_of(server) == before


def test_a_control_process_that_was_stopped_restarts_nothing(base: Path, start_server: Any) -> None:
    server = start_server("half", base, "--unready_after_seconds=2", "--restart_after_seconds=2")
    server.wait_ready()
    before = data_plane_of(server)
    with paused(server):
        time.sleep(4.0)
    time.sleep(1.0)
    assert probe(server) == READY
    assert data_plane_of(server) == before
    assert not any("not answer" in line for line in server.log)


def test_a_new_control_process_does_not_wait_for_one_that_hangs(
    base: Path, start_server: Any
) -> None:
    server = start_server("half", base, "--unready_after_seconds=1", "--restart_after_seconds=2")
    server.wait_ready()
    before = data_plane_of(server)
    control = control_of(server)
    os.kill(control, signal.SIGSTOP)  # so that it does not notice the hang
    os.kill(before, signal.SIGSTOP)
    os.kill(control, signal.SIGKILL)  # the supervisor may reap it at once: nothing to continue
    server.wait_for_log("hotrow-server does not answer the new control process")
    server.wait_for_log("the control process serves again")
    assert ask(server, "half") == (3.0, 123)
    assert data_plane_of(server) != before
    assert server.terminate() == 0


def test_a_load_that_hangs_fails_at_its_limit(
    base: Path, two: Path, tmp_path: Path, start_server: Any
) -> None:
    copied = publish(two, tmp_path / "half", 1)
    # Version 1 must load within it on a busy machine.
    flags = ("--load_timeout_seconds=20", "--max_num_load_retries=0")
    server = start_server("half", copied, *flags)
    server.wait_ready()
    # TensorFlow waits for ever for the writer of a pipe in place of a file.
    unfinished = shutil.copytree(two, tmp_path / "unfinished")
    index = unfinished / "variables" / "variables.index"
    index.unlink()
    os.mkfifo(index)
    unfinished.rename(copied / "2")
    server.wait_for_log("half: version 2 failed to load (attempt 1 of 1, gave up): ")
    wait_for(server, "half", {2: "END", 1: "AVAILABLE"})
    assert any("within 20 s (--load_timeout_seconds)" in line for line in server.log)
    assert ask(server, "half") == (3.0, 1)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        pytest.param(
            ("--unready_after_seconds=9", "--restart_after_seconds=8"),
            "--restart_after_seconds 8 is below --unready_after_seconds 9",
            id="restarted before it is known as not ready",
        ),
        pytest.param(("--unready_after_seconds=0",), "must be above 0", id="never ready"),
        pytest.param(("--load_timeout_seconds=-1",), "or 0 for no limit", id="below 0"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(
    base: Path, flags: tuple[str, ...], text: str
) -> None:
    assert text in refused_start("half", base, *flags)[-1]
