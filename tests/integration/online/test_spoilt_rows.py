"""Rows that are not finite, or far too large, close the gate before servers can read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.online.online_run import Work, append_events, click_rows
from waiting import wait_until

SPOILT = Path(__file__).with_name("spoilt_trainer.py")


@pytest.fixture
def work(tmp_path, redis_server):
    (tmp_path / "events.jsonl").touch()
    work = Work(tmp_path, redis_server.url, f"file:{tmp_path}/events.jsonl")
    work.configure('  admin: "127.0.0.1:0"\n')
    yield work
    work.close()


@pytest.mark.parametrize(
    ("value", "rows", "reason"),
    [
        pytest.param("nan", 1, "not finite", id="one nan"),
        pytest.param("-inf", 1000, "not finite", id="all infinite", marks=pytest.mark.slow),
        pytest.param("1e38", 1, "max_norm_ratio", id="one huge"),
        pytest.param("1e6", 1000, "max_norm_ratio", id="all huge", marks=pytest.mark.slow),
    ],
)
def test_a_spoilt_cut_is_not_published(value, rows, reason, work):
    events = work.folder / "events.jsonl"
    trainer = work.start(program=(str(SPOILT), f"spoils:{value}:{rows}"))
    append_events(events, click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    good = work.last_cut()

    (work.folder / "spoilt").touch()
    append_events(events, click_rows(640, seed=1))
    wait_until(lambda: "publishing stopped: " in work.log(), work.log, 120)
    (line,) = (line for line in work.log().splitlines() if "publishing stopped: " in line)
    assert reason in line
    assert "changed rows of table" in line
    append_events(events, click_rows(640, seed=2))
    work.await_trained(1920)
    assert work.last_cut() == good

    (work.folder / "spoilt").unlink()
    work.command("resume", "run")
    wait_until(lambda: work.published_steps()[-1:] == [30], work.log, 120)
    work.stop(trainer)
    work.check_store()


def test_rows_after_a_cut_without_rows_are_published(work):
    work.replace("learning_rate: 0.1}", "learning_rate: 0.1, initializer: {constant: 2.0}}")
    trainer = work.start()
    wait_until(lambda: work.published_steps() == [0], work.log, 120)
    append_events(work.folder / "events.jsonl", click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    work.stop(trainer)
    work.check_store()
