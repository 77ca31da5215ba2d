"""A trainer is killed at each step of a publish; the resumed one makes servers equal to itself."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from integration.online.online_run import Work, append_events, click_rows
from integration.online.spoilt_trainer import POINTS
from waiting import wait_until

from hotrow.trainer.online.publishing.journal import Journal

SPOILT = Path(__file__).with_name("spoilt_trainer.py")


@pytest.fixture
def make_work(tmp_path, redis_server):
    """Makes a trainer with these options of its configuration."""
    made = []

    def make(**options: Any) -> Work:
        (tmp_path / "events.jsonl").touch()
        source = f"file:{tmp_path}/events.jsonl"
        made.append(Work(tmp_path, redis_server.url, source, **options))
        made[-1].configure('  admin: "127.0.0.1:0"\n')
        return made[-1]

    yield make
    for work in made:
        work.close()


def strangers(count: int, name: str) -> list[dict[str, Any]]:
    """Returns events of users and items that no other events have."""
    rows = click_rows(count, seed=len(name))
    return [{**r, "user": f"{name}-{r['user']}", "item": f"{name}-{r['item']}"} for r in rows]


def await_next_cut(work: Work, before: int, log: str = "log") -> None:
    wait_until(lambda: work.last_cut() > before, lambda: work.log(log), 120)


def await_step(work: Work, step: int, before: int, log: str) -> None:
    """Waits for a cut of a step after another cut, which may be of the same step."""
    await_next_cut(work, before, log)
    wait_until(lambda: work.published_steps()[-1] == step, lambda: work.log(log), 120)


def train_and_stop(work: Work) -> None:
    """Trains 10 steps and publishes them."""
    trainer = work.start()
    append_events(work.folder / "events.jsonl", click_rows(640))
    wait_until(lambda: work.published_steps() != [], work.log, 120)
    work.await_trained(640)
    work.stop(trainer)
    assert work.published_steps()[-1] == 10


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(["having committed"], id="one"),
        pytest.param(POINTS, id="all", marks=pytest.mark.slow),
    ],
)
def test_one_that_is_killed_leaves_nothing_that_the_resumed_one_does_not_have(points, make_work):
    """The events that the killed one has trained since its checkpoint do not come again."""
    work = make_work()
    events = work.folder / "events.jsonl"
    train_and_stop(work)
    for number, point in enumerate(points):
        there, cut = work.events(), work.last_cut()
        log = f"log-{number}"
        dying = work.start(
            "--resume",
            "--set",
            "checkpoint.every_steps=1000",
            program=(str(SPOILT), point),
            log=log,
        )
        await_next_cut(work, cut, log)
        append_events(events, strangers(256, point))
        assert dying.wait(timeout=120) == -signal.SIGKILL, work.log(log)
        gone = Journal(work.folder / "run").keys_since(0)
        # Other events take their place.
        lines = events.read_text().splitlines(keepends=True)
        events.write_text("".join(lines[:there]))
        append_events(events, click_rows(128, seed=number + 1))
        cut = work.last_cut()
        trainer = work.start("--resume", log=log)
        await_step(work, (there + 128) // 64, cut, log)
        work.stop(trainer, log)
        assert work.events() == there + 128
        work.check_store(gone=gone)
        resumed = work.log(log).split("resuming")[-1]
        assert "a full export comes first" not in resumed, point


def test_rows_that_only_a_checkpoint_has_are_published_after_a_kill(make_work):
    """Marks of changed rows are in memory alone; clocks of rows replace them."""
    work = make_work(publish_seconds=3600)  # after the first cut of a process, and at its end
    train_and_stop(work)
    cut = work.last_cut()
    trainer = work.start("--resume")
    await_next_cut(work, cut)
    append_events(work.folder / "events.jsonl", strangers(640, "late"))
    wait_until(lambda: work.has_checkpoint(20), work.log, 120)
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    assert work.published_steps()[-1] == 10
    trainer = work.start("--resume")
    await_step(work, 20, cut, "log")
    work.stop(trainer)
    assert work.events() == 1280
    work.check_store()
