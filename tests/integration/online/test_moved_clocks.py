"""A trainer whose wall clock jumps publishes as before: nothing is ordered by it."""

from __future__ import annotations

import pytest
from faults.clocks import Clock, build
from integration.online.online_run import Work, append_events, click_rows
from waiting import wait_until

HOUR = 3600


@pytest.fixture
def work(tmp_path, redis_server):
    (tmp_path / "events.jsonl").touch()
    work = Work(tmp_path, redis_server.url, f"file:{tmp_path}/events.jsonl")
    work.configure('  admin: "127.0.0.1:0"\n')
    yield work
    work.close()


def test_cuts_go_on_over_jumps_of_an_hour_and_a_restart_in_the_past(work, tmp_path):
    events = work.folder / "events.jsonl"
    clock = Clock(tmp_path / "clock", build(tmp_path))
    cuts = []

    def publishes(step: int) -> None:
        append_events(events, click_rows(640, seed=step))
        wait_until(lambda: work.published_steps()[-1:] == [step], work.log, 120)
        cuts.append(work.last_cut())

    trainer = work.start(variables=clock.variables)
    publishes(10)
    clock.jump(HOUR)
    publishes(20)
    clock.jump(-HOUR)
    publishes(30)
    work.stop(trainer)
    clock.jump(-2 * HOUR)
    trainer = work.start("--resume", variables=clock.variables)
    publishes(40)
    assert cuts == sorted(set(cuts))
    work.stop(trainer)
    assert work.events() == 2560
    work.check_store()
