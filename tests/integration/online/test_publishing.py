"""Servers' rows are those of the trainer, whenever it is stopped, killed or resumed."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from integration.online.online_run import Work, append_events, click_rows, folders_of
from waiting import wait_until


@pytest.fixture
def work(tmp_path, redis_server):
    """A trainer on a file of events that grows, with its rows in Redis."""
    (tmp_path / "events.jsonl").touch()
    work = Work(tmp_path, redis_server.url, f"file:{tmp_path}/events.jsonl")
    yield work
    work.close()


def test_the_store_has_the_rows_of_a_trainer_that_was_stopped(work):
    trainer = work.start()
    append_events(work.folder / "events.jsonl", click_rows(1000))
    wait_until(lambda: (work.folder / "models" / "clicks" / "1").exists(), work.log, 120)
    append_events(work.folder / "events.jsonl", click_rows(500, seed=1))
    wait_until(lambda: work.published_steps()[-1:] > [15], work.log, 120)
    work.stop(trainer)
    assert work.events() == 1500
    work.check_store()


def test_a_trainer_that_is_killed_publishes_again_what_servers_have_newer(work):
    """Its checkpoint is older than the newest cut; the stream is longer when it is resumed."""
    events = work.folder / "events.jsonl"
    trainer = work.start("--set", "checkpoint.every_steps=1000")
    append_events(events, click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    work.stop(trainer)
    trainer = work.start("--set", "checkpoint.every_steps=1000", "--resume")
    append_events(events, click_rows(640, seed=1))
    wait_until(lambda: work.published_steps()[-1:] >= [20], work.log, 120)
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    # Other events than the killed one has trained: its rows must go.
    kept = events.read_text().splitlines(keepends=True)[:700]
    events.write_text("".join(kept))
    append_events(events, click_rows(10, seed=2))
    trainer = work.start("--resume")
    wait_until(lambda: work.published_steps()[-1:] == [12], work.log, 120)  # 64 events, then 6
    work.stop(trainer)
    assert work.events() == 710
    work.check_store()
    assert "a full export comes first" not in work.log().split("resuming")[-1]


def test_changed_rows_make_a_cut_due_before_its_time(work):
    work.replace("publish_seconds: 0.2", "publish_seconds: 1000")
    work.configure("  publish_rows: 20\n")
    events = work.folder / "events.jsonl"
    trainer = work.start()
    for number in range(1, 4):
        append_events(events, click_rows(640, seed=number))
        wait_until(lambda n=number: work.published_steps()[-1:] >= [10 * n - 9], work.log, 120)
    work.stop(trainer)
    work.check_store()


def test_a_trainer_whose_folding_process_is_killed_publishes_and_folds_on(work):
    events = work.folder / "events.jsonl"
    trainer = work.start()
    append_events(events, click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    (pid,) = folders_of(trainer.pid)
    os.kill(pid, signal.SIGKILL)
    work.await_line("publishing failed: the process that folds cuts has ended: signal 9")
    append_events(events, click_rows(640, seed=1))
    wait_until(lambda: work.published_steps()[-1:] >= [20], work.log, 120)
    wait_until(work.all_folded, work.log, 60)
    assert folders_of(trainer.pid) != [pid]
    work.stop(trainer)
    work.check_store()


def test_two_ranks_publish_the_rows_of_one(work, tmp_path):
    """One table is split by rows; the other is on both ranks, and one of them publishes it."""
    events = work.folder / "events.jsonl"
    sharding = ("--set", "tables.user={sharding: replicated}", "--set", "parallel.sharding=row")
    trainer = work.start("--workers", "2", *sharding)
    append_events(events, click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    append_events(events, click_rows(640, seed=1))
    wait_until(lambda: work.published_steps()[-1:] >= [20], work.log, 120)
    work.stop(trainer)
    assert work.events() == 1280
    work.check_store()
    # One rank, from a recording of the same events.
    alone = Work(tmp_path / "alone", "", f"file:{events}")
    alone.train("--set", "train.max_steps=20")
    for name, table in alone.tables().items():
        np.testing.assert_array_equal(table["keys"], work.tables()[name]["keys"])
        np.testing.assert_allclose(table["weights"], work.tables()[name]["weights"], atol=1e-6)


def test_a_store_that_loses_everything_gets_a_new_base_by_itself(work, redis_server):
    events = work.folder / "events.jsonl"
    trainer = work.start()
    append_events(events, click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    redis_server.client().flushall()
    append_events(events, click_rows(640, seed=1))
    wait_until(lambda: (work.folder / "models" / "clicks" / "2").exists(), work.log, 120)
    append_events(events, click_rows(64, seed=2))
    wait_until(lambda: work.published_steps()[-1:] == [21], work.log, 120)
    work.stop(trainer)
    work.check_store()


def test_a_trainer_with_other_tables_publishes_a_version_of_its_own(work):
    """Servers of the version before keep rows of their own dimension."""
    events = work.folder / "events.jsonl"
    trainer = work.start()
    append_events(events, click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    work.stop(trainer)
    work.replace("dim: 4", "dim: 8")
    work.replace("bottom: [4]", "bottom: [8]")
    trainer = work.start(run="wider", log="wider.log")
    newer = work.folder / "models" / "clicks" / "2"
    wait_until(newer.exists, lambda: work.log("wider.log"), 60)
    append_events(events, click_rows(640, seed=1))
    wait_until(lambda: work.published_steps()[-1:] == [20], lambda: work.log("wider.log"), 120)
    work.stop(trainer, "wider.log")
    work.check_store("wider")
    assert {table["weights"].shape[1] for table in work.tables("wider").values()} == {8}


def test_a_resumed_trainer_without_events_fills_an_empty_store(work, redis_server):
    trainer = work.start()
    append_events(work.folder / "events.jsonl", click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    work.stop(trainer)
    redis_server.client().flushall()
    trainer = work.start("--resume")
    wait_until((work.folder / "models" / "clicks" / "2").exists, work.log, 60)
    work.stop(trainer)
    work.check_store()


def test_a_table_that_has_outgrown_its_place_in_the_store_gets_a_new_base(work):
    """The base was laid out for the rows of a short history; events bring many more keys."""
    history = ("train", "clicks.yaml", "--run-dir", "history")
    work.command(*history)
    work.command(
        *("export", "history", "--to", "models", "--name", "clicks"),
        *("--store", work.store, "--store_shards", "32"),
    )
    (first,) = (table for table in work.generation().tables if table.name == "user")
    rows = [row | {"user": f"new-{number}"} for number, row in enumerate(click_rows(4000))]
    append_events(work.folder / "events.jsonl", rows)
    process = work.start("--from", "history")
    work.await_line("many more than the store was laid out for: a full export follows")
    wait_until(lambda: work.manifest().version == 2, work.log, 120)
    (later,) = (table for table in work.generation().tables if table.name == "user")
    assert later.pages >= 65_536 / 32 / 20 > 4 * first.pages
    assert (first.planned_rows, later.planned_rows) == (0, 65_536)
    work.stop(process)
    work.check_store()
    assert work.manifest().version == 2  # and none follows
