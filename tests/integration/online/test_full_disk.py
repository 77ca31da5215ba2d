"""A trainer whose disk is full trains on, publishes nothing that it cannot note, and goes on later.

A limit on the size of a file stands for the disk, as in `tests/integration/test_full_disk.py`.
"""

from __future__ import annotations

import json
import re
import tempfile

import pytest
from event_runs import letters
from full_disk import fill_disk_of, free_disk_of
from integration.online.online_run import Work, append_events, click_rows
from waiting import wait_until

MOST_BYTES = 16 << 10  # more than the log and the metrics have, less than the keys of a cut
ON_A_FULL_DISK = """\
import os, resource, runpy, subprocess
log = subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # the limit is not for the log
os.dup2(log.stdin.fileno(), 1)
os.dup2(log.stdin.fileno(), 2)
resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))
runpy.run_module("hotrow.cli.main", run_name="__main__")
"""


@pytest.fixture
def work(tmp_path, redis_server):
    (tmp_path / "events.jsonl").touch()
    work = Work(tmp_path, redis_server.url, f"file:{tmp_path}/events.jsonl", checkpoint_steps=5)
    work.configure('  admin: "127.0.0.1:0"\n')
    yield work
    work.close()


def many_rows(count: int, name: str):
    """Returns events with as many new users and items."""
    rows = click_rows(count)
    return [{**r, "user": f"{name}-{i}", "item": f"{name}-{i}"} for i, r in enumerate(rows)]


def test_what_cannot_be_noted_is_published_when_there_is_room(work):
    events = work.folder / "events.jsonl"
    work.replace("batch_size: 64", "batch_size: 2048")
    trainer = work.start()
    append_events(events, many_rows(5 * 2048, "a"))
    wait_until(lambda: work.published_steps()[-1:] == [5], work.log, 180)
    good = work.last_cut()

    fill_disk_of(trainer.pid, MOST_BYTES)
    append_events(events, many_rows(5 * 2048, "b"))
    work.await_trained(10 * 2048)
    wait_until(lambda: "publishing failed: " in work.log(), work.log, 120)
    append_events(events, many_rows(5 * 2048, "c"))
    work.await_trained(15 * 2048)
    wait_until(lambda: bool(re.search(r"checkpoint of step \d+ is not", work.log())), work.log, 120)
    assert work.last_cut() == good

    free_disk_of(trainer.pid)
    append_events(events, many_rows(5 * 2048, "d"))
    wait_until(lambda: work.published_steps()[-1:] == [20], work.log, 120)
    work.stop(trainer)
    assert work.events() == 20 * 2048
    work.check_store()


def test_a_trainer_resumes_while_its_disk_is_full(work):
    events = work.folder / "events.jsonl"
    work.configure("  window_seconds: 0.1\n")
    trainer = work.start()
    append_events(events, click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    assert (work.folder / "run" / "config.yaml").stat().st_size > 512
    trainer.kill()
    trainer.wait()

    append_events(events, click_rows(640))
    trainer = work.start(
        "--resume",
        log="log-2",
        program=("-c", ON_A_FULL_DISK),
        variables={"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    work.await_line("the admin service answers", "log-2")
    work.await_trained(1280, log="log-2")
    refused = f"weights cannot be written to {tempfile.gettempdir()}: File too large"
    work.await_line(f"publishing failed: {refused}", "log-2")
    assert work.published_steps()[-1:] == [10]

    free_disk_of(trainer.pid)
    wait_until(lambda: work.published_steps()[-1:] == [20], work.log, 120)
    work.stop(trainer, "log-2")
    assert work.events() == 1280
    work.check_store()


def test_events_wait_while_bad_ones_cannot_be_written(work):
    events, dead = work.folder / "events.jsonl", work.folder / "run" / "dead_letters.jsonl"
    trainer = work.start()
    append_events(events, click_rows(640))
    work.await_trained(640)

    fill_disk_of(trainer.pid, MOST_BYTES)
    bad = [json.dumps({"click": 7, "number": number, "text": "x" * 100}) for number in range(200)]
    with events.open("a") as file:
        file.write("".join(f"{line}\n" for line in bad))
    append_events(events, click_rows(640))
    wait_until(lambda: f"{dead.name} cannot be written: File too large" in work.log(), work.log, 60)
    assert work.trained() < 1280
    assert 0 < len(letters(dead)) < 200  # whole lines

    free_disk_of(trainer.pid)
    work.await_trained(1280)
    assert f"{dead.name} is written again" in work.log()
    work.stop(trainer)
    assert [letter["event"].rstrip() for letter in letters(dead)] == bad
    assert work.events() == 1280
    work.check_store()
