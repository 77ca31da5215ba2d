"""A trainer whose disk is full trains on, publishes nothing that it cannot note, and goes on later.

A limit on the size of a file stands for the disk, as in `tests/integration/test_full_disk.py`.
"""

from __future__ import annotations

import json
import re
import resource

import pytest
from event_runs import letters
from integration.online.online_run import Work, append_events, click_rows
from waiting import wait_until

FREE = resource.RLIM_INFINITY
MOST_BYTES = 16 << 10  # more than the log and the metrics have, less than the keys of a cut


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

    resource.prlimit(trainer.pid, resource.RLIMIT_FSIZE, (MOST_BYTES, FREE))
    append_events(events, many_rows(5 * 2048, "b"))
    work.await_trained(10 * 2048)
    wait_until(lambda: "publishing failed: " in work.log(), work.log, 120)
    append_events(events, many_rows(5 * 2048, "c"))
    work.await_trained(15 * 2048)
    wait_until(lambda: bool(re.search(r"checkpoint of step \d+ is not", work.log())), work.log, 120)
    assert work.last_cut() == good

    resource.prlimit(trainer.pid, resource.RLIMIT_FSIZE, (FREE, FREE))
    append_events(events, many_rows(5 * 2048, "d"))
    wait_until(lambda: work.published_steps()[-1:] == [20], work.log, 120)
    work.stop(trainer)
    assert work.events() == 20 * 2048
    work.check_store()


def test_events_wait_while_bad_ones_cannot_be_written(work):
    events, dead = work.folder / "events.jsonl", work.folder / "run" / "dead_letters.jsonl"
    trainer = work.start()
    append_events(events, click_rows(640))
    work.await_trained(640)

    resource.prlimit(trainer.pid, resource.RLIMIT_FSIZE, (MOST_BYTES, FREE))
    bad = [json.dumps({"click": 7, "number": number, "text": "x" * 100}) for number in range(200)]
    with events.open("a") as file:
        file.write("".join(f"{line}\n" for line in bad))
    append_events(events, click_rows(640))
    wait_until(lambda: f"{dead.name} cannot be written: File too large" in work.log(), work.log, 60)
    assert work.trained() < 1280
    assert 0 < len(letters(dead)) < 200  # whole lines

    resource.prlimit(trainer.pid, resource.RLIMIT_FSIZE, (FREE, FREE))
    work.await_trained(1280)
    assert f"{dead.name} is written again" in work.log()
    work.stop(trainer)
    assert [letter["event"].rstrip() for letter in letters(dead)] == bad
    assert work.events() == 1280
    work.check_store()
