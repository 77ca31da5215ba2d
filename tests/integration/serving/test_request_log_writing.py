"""Files of request logs: their length, their places, and disks that take nothing."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.serving.metrics_page import samples_of
from integration.serving.model_configs import (
    WAIT_SECONDS,
    ask,
    model,
    reload,
    write_config,
)
from integration.serving.request_log_files import files, logging, records, wait_for_records
from integration.serving.server_processes import data_plane_of

Serve = Callable[..., Any]
LOG_COUNT = ":tensorflow:serving:request_log_count"


@pytest.fixture(scope="module")
def base(testdata: Path) -> Path:
    """A base path of half_plus_two: 2.0 becomes 3.0."""
    return testdata / "saved_model_half_plus_two_cpu"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Where requests are logged, in a folder of their own."""
    (tmp_path / "requests").mkdir()
    return tmp_path / "requests" / "half"


@pytest.fixture
def serve(start_server: Any, tmp_path: Path) -> Serve:
    """Starts a server of these models, with metrics."""

    def start(*models: str, flags: tuple[str, ...] = ()) -> Any:
        path = write_config(tmp_path / "models.txt", *models)
        (tmp_path / "monitoring").write_text("prometheus_config { enable: true }")
        monitoring = f"--monitoring_config_file={tmp_path}/monitoring"
        server = start_server("half", "", f"--model_config_file={path}", monitoring, *flags)
        server.wait_ready()
        return server

    return start


def test_long_files_are_followed_by_others_and_none_is_written_over(
    base: Path, prefix: Path, serve: Serve
) -> None:
    kept: dict[Path, bytes] = {}
    for run in (1, 2):
        server = serve(
            model("half", base, logging(prefix)), flags=("--request_log_file_bytes=400",)
        )
        for _ in range(7):
            ask(server, "half")
        assert server.terminate() == 0
        found = files(prefix)
        assert len(found) > len(kept) + 1
        assert all(path.stat().st_size <= 400 for path in found)
        assert all(path.read_bytes() == content for path, content in kept.items())
        assert len(records(*found)) == 7 * run
        kept = {path: path.read_bytes() for path in found}


def test_old_files_and_removed_ones_are_followed_by_others(
    base: Path, prefix: Path, serve: Serve
) -> None:
    server = serve(model("half", base, logging(prefix)), flags=("--request_log_file_seconds=1",))
    end = time.monotonic() + WAIT_SECONDS
    asked = 0
    while len(files(prefix)) < 2:
        assert time.monotonic() < end
        ask(server, "half")
        asked += 1
        time.sleep(0.05)
    wait_for_records(prefix, asked)
    reload(server, model("half", base, logging(f"{prefix}-again")))
    again = prefix.with_name("half-again")
    for _ in range(2):
        ask(server, "half")
        wait_for_records(again, 1)
        for path in files(again):
            path.unlink()


def test_a_folder_that_is_not_there_costs_records_and_no_request(
    base: Path, tmp_path: Path, serve: Serve
) -> None:
    prefix = tmp_path / "absent" / "half"
    server = serve(model("half", base, logging(prefix)))
    for _ in range(3):
        assert ask(server, "half")[0] == 3.0
    server.wait_for_log("requests are not logged: ")
    (line,) = [line for line in server.log if "requests are not logged" in line]
    assert str(prefix) in line
    assert "No such file or directory" in line
    samples = _samples_when_counted(server, "UNAVAILABLE", 3)
    assert samples['hotrow_request_log_dropped_total{model_name="half",reason="not_written"}'] == 3
    prefix.parent.mkdir()
    end = time.monotonic() + WAIT_SECONDS
    while not files(prefix):
        assert time.monotonic() < end
        ask(server, "half")
        time.sleep(0.05)
    server.wait_for_log("requests are logged again: ")
    assert len([line for line in server.log if "requests are not logged" in line]) == 1


def test_a_full_disk_costs_records_and_no_request(base: Path, prefix: Path, serve: Serve) -> None:
    server = serve(model("half", base, logging(prefix)))
    ask(server, "half")
    wait_for_records(prefix, 1)
    (path,) = files(prefix)
    whole = path.stat().st_size
    pid = data_plane_of(server)
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    # The next record fits in part.
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (whole + whole // 2, hard))
    assert ask(server, "half")[0] == 3.0
    server.wait_for_log("requests are not logged: ")
    _samples_when_counted(server, "UNAVAILABLE", 1)
    assert path.stat().st_size == whole
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
    end = time.monotonic() + WAIT_SECONDS
    while path.stat().st_size == whole:
        assert time.monotonic() < end
        assert ask(server, "half")[0] == 3.0
        time.sleep(0.05)
    server.wait_for_log("requests are logged again: ")
    assert len(records(path)) >= 2


def test_what_does_not_fit_in_memory_is_dropped_and_counted(
    base: Path, prefix: Path, serve: Serve
) -> None:
    server = serve(model("half", base, logging(prefix)), flags=("--request_log_queue_bytes=1000",))
    ask(server, "half")
    server.predict(x=np.zeros(1000, np.float32))
    samples = _samples_when_counted(server, "RESOURCE_EXHAUSTED", 1)
    assert samples['hotrow_request_log_dropped_total{model_name="half",reason="queue_full"}'] == 1
    wait_for_records(prefix, 1)


def _samples_when_counted(server: Any, status: str, count: int) -> dict[str, float]:
    """Returns the metrics when so many records have this status."""
    key = f'{LOG_COUNT}{{model_name="half",status_code="{status}"}}'
    end = time.monotonic() + WAIT_SECONDS
    while (samples := samples_of(server)).get(key, 0) < count:
        assert time.monotonic() < end, samples.get(key)
        time.sleep(0.05)
    assert samples[key] == count
    return samples
