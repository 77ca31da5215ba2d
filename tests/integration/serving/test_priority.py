"""Which threads of a server go first on a busy machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.serving.marked_rows import MarkedModel, marked_load
from integration.serving.server_processes import control_of, data_plane_of

POLICIES = {"--other": os.SCHED_OTHER, "--batch": os.SCHED_BATCH, "--rr": os.SCHED_RR}
BACKGROUND = (os.SCHED_BATCH, 19)
CUTS_NICE = 5


@pytest.fixture
def model(redis_server: Any, tmp_path: Path) -> Iterator[MarkedModel]:
    """A marked model with its rows in a Redis."""
    with contextlib.closing(MarkedModel(tmp_path / "models", redis_server.url)) as made:
        yield made


def _threads(process: int) -> list[tuple[int, int]]:
    """Returns the policy and nice value of each thread of a process."""
    found = []
    for number in map(int, os.listdir(f"/proc/{process}/task")):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            policy = os.sched_getscheduler(number)
            found.append((policy, os.getpriority(os.PRIO_PROCESS, number)))
    return found


@pytest.mark.parametrize("option", ["--other", "--batch", "--rr"])
def test_requests_keep_the_policy_of_the_start_and_updates_are_not_real_time(
    option: str, model: MarkedModel, start_server: Any
) -> None:
    policy = POLICIES[option]
    first = ["chrt", option, str(os.sched_get_priority_min(policy))]
    if subprocess.run([*first, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("a real-time policy needs CAP_SYS_NICE")
    server = start_server("m", model.path, "--cache_rows=100", first=first)
    server.wait_ready()
    with marked_load(server) as load:
        model.wait_until_noted(model.write(1))
        load.wait_for(1)
    assert load.failures() == []
    requests = _threads(data_plane_of(server))
    assert (policy, 0) in requests
    assert BACKGROUND in requests
    assert set(requests) <= {(policy, 0), BACKGROUND}
    of_cuts = os.SCHED_OTHER if policy == os.SCHED_RR else policy
    assert (of_cuts, CUTS_NICE) in _threads(control_of(server))
