"""Cuts of a killed trainer that its checkpoint does not have, when servers show them again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.online.online_run import Work, append_events, click_rows
from waiting import wait_until

from hotrow.trainer.online.publishing.journal import FOLDER, Journal

SPOILT = str(Path(__file__).with_name("spoilt_trainer.py"))


@pytest.fixture
def work(tmp_path, redis_server) -> Iterator[Work]:
    """A trainer that has published step 10, of 640 events, and was ended."""
    events = tmp_path / "events.jsonl"
    append_events(events, click_rows(640))
    work = Work(tmp_path, redis_server.url, f"file:{events}")
    work.configure('  admin: "127.0.0.1:0"\n')
    with contextlib.closing(work):
        trainer = work.start()
        await_published(work, 10)
        work.stop(trainer)
        yield work


def await_published(work: Work, step: int) -> None:
    """Waits until the rows of a step are in the store, and no cut is to be folded."""
    wait_until(lambda: work.published_steps()[-1:] == [step] and work.all_folded(), work.log, 120)


def kill_with_a_cut(work: Work) -> dict[str, Any]:
    """A trainer publishes step 14 and is killed before a checkpoint; its events do not come again.

    Returns:
        The keys of its cuts, by table, of which some have no row any more.
    """
    events = work.folder / "events.jsonl"
    there = events.read_text()
    # The first cut of a process may have no rows.
    trainer = work.start("--resume", "--set", "checkpoint.every_steps=1000")
    for number in range(2):
        rows = click_rows(128, seed=number)
        append_events(events, [{**row, "user": f"lost-{row['user']}"} for row in rows])
        await_published(work, 12 + 2 * number)
    trainer.kill()
    trainer.wait()
    events.write_text(there)
    return Journal(work.folder / "run").keys_since(0)


def publish(work: Work, steps: int) -> None:
    """Appends events and waits until they are published."""
    events = work.folder / "events.jsonl"
    there = len(events.read_text().splitlines())
    append_events(events, click_rows(64 * steps, seed=there))
    await_published(work, there // 64 + steps)


def test_they_are_taken_back_whenever_servers_show_them(work, redis_server):
    """After the kill, if the next cut fails; and when the store goes back to them later."""
    gone = kill_with_a_cut(work)
    snapshot = redis_server.snapshot()
    (work.folder / "spoilt").touch()
    trainer = work.start("--resume", program=(SPOILT, "spoils:nan:1"))
    work.await_line("are not finite")  # a gate refuses the cut; servers show a newer one
    (work.folder / "spoilt").unlink()
    work.command("resume", "run")
    publish(work, 5)
    publish(work, 5)
    # It has a checkpoint of its own since, which does not have the keys of the killed one's cuts.
    wait_until(lambda: work.has_checkpoint(20), work.log, 120)
    publish(work, 1)

    redis_server.go_back(snapshot)
    publish(work, 4)
    publish(work, 5)
    assert "the store went back in time and has lost" in work.log()
    wait_until(lambda: work.has_checkpoint(30), work.log, 120)
    work.check_store(gone=gone)

    # A replica took over that was behind, on another node than that of the records.
    with redis_server.client() as client:
        records = client.dump("hotrow:{hr}")
    redis_server.go_back(snapshot)
    with redis_server.client() as client:
        client.restore("hotrow:{hr}", 0, records, replace=True)
    publish(work, 1)
    publish(work, 1)
    work.stop(trainer)
    assert "shards went back in time and have lost rows" in work.log()
    assert work.log().count("a full export comes first") == 1, work.log()
    assert work.events() == 32 * 64
    work.check_store(gone=gone)


@pytest.mark.parametrize("knows_keys", [True, False], ids=["with journal", "without journal"])
def test_they_are_taken_back_if_the_store_has_lost_them(work, redis_server, knows_keys):
    """The node of the records went back to before the kill, and those of the rows did not.

    The resumed training goes on from the newest cut in the records. Rows of the lost ones are in
    the store, as they may be in caches of servers.
    """
    with redis_server.client() as client:
        records = client.dump("hotrow:{hr}")
    gone = kill_with_a_cut(work)
    with redis_server.client() as client:
        client.restore("hotrow:{hr}", 0, records, replace=True)
    if not knows_keys:
        for path in (work.folder / "run" / FOLDER).iterdir():
            path.unlink()
    trainer = work.start("--resume")
    publish(work, 5)
    work.stop(trainer)
    assert "the store went back in time and has lost step 14" in work.log()
    assert ("does not know its rows" in work.log()) == (not knows_keys)
    assert work.log().count("a full export comes first") == 2 - knows_keys, work.log()
    work.check_store(gone=gone)


@pytest.mark.slow
def test_a_journal_that_is_damaged_is_replaced_by_a_full_export(work):
    gone = kill_with_a_cut(work)
    *_, path = sorted((work.folder / "run" / FOLDER).iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    trainer = work.start("--resume")
    publish(work, 5)
    work.stop(trainer)
    assert path.name in work.log()
    assert work.log().count("a full export comes first") == 2, work.log()
    work.check_store(gone=gone)
