"""Memory of a trainer, a server and their store does not grow with the number of cuts.

HOTROW_SOAK_CUTS sets how many there are.
"""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from integration.online.online_run import Work, append_events, click_rows, folders_of
from integration.serving.server_processes import control_of, data_plane_of
from waiting import wait_until

CUTS = int(os.environ.get("HOTROW_SOAK_CUTS", "2000"))
WARM = 400  # cuts, after which caches and pools have their size
MOST_BYTES = 64 << 20  # as much as 40 KB a cut
SECONDS = 3600.0
ROWS = click_rows(6400)


@pytest.fixture
def work(tmp_path, redis_server):
    (tmp_path / "events.jsonl").touch()
    work = Work(
        tmp_path,
        redis_server.url,
        f"file:{tmp_path}/events.jsonl",
        publish_seconds=0.02,
        checkpoint_steps=200,
    )
    work.configure('  admin: "127.0.0.1:0"\n')
    yield work
    work.close()


def write_events(path: Path, ended: threading.Event) -> None:
    """Writes the same events again and again, later each time: the tables keep their size."""
    for first in itertools.count():
        for at in range(0, len(ROWS), 64):
            if ended.wait(0.03):
                return
            later = first * 64.0
            rows = ROWS[at : at + 64]
            append_events(path, [{**row, "time": row["time"] + later} for row in rows])


def resident(pid: int) -> int:
    """Returns the memory of a process in bytes, without files that it has mapped."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


@pytest.mark.slow
def test_memory_does_not_grow_with_cuts(work: Work, start_server: Any, redis_server: Any) -> None:
    trainer = work.start()
    ended = threading.Event()
    source = threading.Thread(
        target=write_events, args=(work.folder / "events.jsonl", ended), daemon=True
    )
    source.start()
    models = work.folder / "models" / "clicks"
    wait_until(lambda: (models / "1").exists(), work.log, 120)
    server = start_server("clicks", models, "--cache_rows=1000")
    server.wait_ready()

    def sizes() -> dict[str, int]:
        (folder,) = folders_of(trainer.pid)
        pids = {"trainer": trainer.pid, "folder": folder, "control": control_of(server)}
        found = {name: resident(pid) for name, pid in pids.items()}
        memory = redis_server.client()
        found["store"] = int(memory.info("memory")["used_memory"])
        memory.close()
        return found | {"executable": resident(data_plane_of(server))}

    def wait_for(cuts: int) -> dict[str, int]:
        wait_until(lambda: work.counted("cuts") >= cuts, work.log, SECONDS)
        return sizes()

    before = wait_for(WARM)
    after = wait_for(CUTS)
    ended.set()
    source.join()
    print(f"{CUTS - WARM} cuts: {before} -> {after}")
    grown = {name: after[name] - before[name] for name in before}
    assert max(grown.values()) < MOST_BYTES, grown
    work.stop(trainer)
    work.check_store()
