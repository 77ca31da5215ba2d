"""Versions whose load ends the executable: they are given up, and the others serve."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from integration.serving.cut_servers import metrics
from integration.serving.lethal_model import SIGNAL, save_lethal
from integration.serving.metrics_page import samples_of
from integration.serving.model_configs import (
    ask,
    model,
    publish,
    refusal,
    reload,
    wait_for,
    write_config,
)
from integration.serving.server_processes import data_plane_of
from tensorflow_serving.apis import get_model_status_pb2
from waiting import wait_until

SOON = "--load_retry_interval_micros=100000"
ENDED = f"hotrow-server ended (signal {SIGNAL})"


def status_of(server: Any, name: str, version: int) -> Any:
    """Returns code and text of a version."""
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = name
    request.model_spec.version.value = version
    (found,) = server.models.GetModelStatus(request, timeout=30).model_version_status
    return found.status.error_code, found.status.error_message


@pytest.fixture
def trigger(tmp_path: Path) -> Path:
    """The file that makes versions lethal; it is there."""
    path = tmp_path / "trigger"
    path.touch()
    return path


def test_a_version_whose_load_ends_the_executable_is_given_up(
    two: Path, three: Path, tmp_path: Path, trigger: Path, start_server: Any
) -> None:
    base = publish(two, tmp_path / "half", 1)
    path = write_config(tmp_path / "models.txt", model("half", base), model("three", three.parent))
    flags = (f"--model_config_file={path}", "--max_num_load_retries=2", SOON, metrics(tmp_path))
    server = start_server("", "", *flags)
    server.wait_ready()
    save_lethal(base, 2, trigger)
    server.wait_for_log(f"half: version 2 failed to load (attempt 3 of 3, gave up): {base}/2: ")
    wait_until(lambda: server.log[-1] == "hotrow-server serves again", lambda: server.log)
    wait_for(server, "half", {2: "END", 1: "AVAILABLE"})
    assert status_of(server, "half", 2) == (14, f"{ENDED} meanwhile")
    # Both models serve, and the load is not asked for again.
    assert ask(server, "half") == (3.0, 1)
    assert ask(server, "three") == (4.0, 123)
    assert sum(line.startswith(f"{ENDED};") for line in server.log) == 3
    assert server.rest("/v1/health/ready")[0] == 200
    samples = samples_of(server)
    assert samples['hotrow_load_crashes_total{model_name="half",version="2"}'] == 3
    failed = 'hotrow_model_version_failed{model_name="half",version="2",code="UNAVAILABLE"}'
    assert samples[failed] == 1
    # A version that comes later is none of them.
    trigger.unlink()
    save_lethal(base, 3, trigger)
    wait_for(server, "half", {3: "AVAILABLE", 2: "END", 1: "END"})
    assert failed not in samples_of(server)


def test_versions_that_load_beside_a_lethal_one_are_loaded(
    base: Path, three: Path, tmp_path: Path, trigger: Path, start_server: Any
) -> None:
    lethal = save_lethal(tmp_path / "lethal", 1, trigger)
    server = start_server("half", base, "--max_num_load_retries=0", SOON)
    server.wait_ready()
    several = [model(f"three{number}", three.parent) for number in range(4)]
    models = model("half", base), model("lethal", lethal), *several
    # The call ends with the executable, and the configuration stays.
    assert refusal(lambda: reload(server, *models))[0] == "UNAVAILABLE"
    server.wait_for_log("lethal: version 1 failed to load (attempt 1 of 1, gave up): ")
    wait_for(server, "lethal", {1: "END"})
    assert status_of(server, "lethal", 1) == (14, f"{ENDED} meanwhile")
    for number in range(4):
        wait_for(server, f"three{number}", {123: "AVAILABLE"})
        assert ask(server, f"three{number}") == (4.0, 123)
    assert ask(server, "half") == (3.0, 123)


def test_a_version_that_serves_and_cannot_be_loaded_again_does_not_keep_the_others(
    base: Path, tmp_path: Path, trigger: Path, start_server: Any
) -> None:
    trigger.unlink()
    lethal = save_lethal(tmp_path / "lethal", 1, trigger)
    path = write_config(tmp_path / "models.txt", model("half", base), model("lethal", lethal))
    flags = (f"--model_config_file={path}", "--max_num_load_retries=1", SOON, metrics(tmp_path))
    server = start_server("", "", *flags)
    server.wait_ready()
    assert ask(server, "lethal") == (4.0, 1)
    trigger.touch()
    os.kill(data_plane_of(server), signal.SIGKILL)
    server.wait_for_log("lethal: version 1 failed to load (attempt 2 of 2, gave up): ")
    wait_until(lambda: server.log[-1] == "hotrow-server serves again", lambda: server.log)
    wait_for(server, "lethal", {1: "END"})
    assert status_of(server, "lethal", 1) == (14, f"{ENDED} meanwhile")
    assert ask(server, "half") == (3.0, 123)
    assert refusal(lambda: ask(server, "lethal"))[0] == "NOT_FOUND"
    # Two while it was loaded again, one by the attempt after.
    crashes = 'hotrow_load_crashes_total{model_name="lethal",version="1"}'
    assert samples_of(server)[crashes] == 3


def test_a_version_that_needs_more_memory_than_is_left_is_refused_with_the_numbers(
    two: Path, tmp_path: Path, start_server: Any
) -> None:
    base = publish(two, tmp_path / "half", 1)
    server = start_server("half", base, "--max_num_load_retries=0")
    server.wait_ready()
    before = data_plane_of(server)
    variables = shutil.copytree(two, tmp_path / "2") / "variables"
    variables.mkdir(exist_ok=True)
    with (variables / "variables.data-00000-of-00001").open("ab") as file:
        file.truncate(2**42)  # a hole
    (tmp_path / "2").rename(base / "2")
    server.wait_for_log("half: version 2 failed to load (attempt 1 of 1, gave up): ")
    wait_for(server, "half", {2: "END", 1: "AVAILABLE"})
    code, text = status_of(server, "half", 2)
    assert code == 8
    pattern = (
        rf"{base}/2 needs at least 4,194,304 MiB of memory \(variables 4,194,304 MiB, the graph "
        r"0 MiB\), and (the machine|the cgroup \S+) has [\d,]+ MiB of its [\d,]+ MiB left; .+"
    )
    assert re.fullmatch(pattern, text), text
    assert data_plane_of(server) == before
    assert ask(server, "half") == (3.0, 1)
