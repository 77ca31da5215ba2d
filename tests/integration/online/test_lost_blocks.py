"""A store that has lost a block of a cut before servers took it gets the cut again."""

from __future__ import annotations

import contextlib

import pytest
from integration.online.online_run import Work, append_events, click_rows
from waiting import wait_until

from hotrow.store import open_store
from hotrow.store.cuts import cuts_of, read_blocks
from hotrow.store.generations import Generations
from hotrow.store.readers import use


@pytest.fixture
def work(tmp_path, redis_server):
    (tmp_path / "events.jsonl").touch()
    work = Work(tmp_path, redis_server.url, f"file:{tmp_path}/events.jsonl")
    # Overruling the server would show the loss, too, and much later.
    work.configure("  max_hold_seconds: 3600\n")
    yield work
    work.close()


@pytest.mark.parametrize("lost", [0, -1], ids=["the oldest", "the newest"])
def test_a_cut_that_a_server_cannot_take_is_published_again(lost, work):
    """Of those that it has not taken, any one keeps it from the newest."""
    events = work.folder / "events.jsonl"
    trainer = work.start()
    append_events(events, click_rows(640))
    wait_until(lambda: work.published_steps()[-1:] == [10], work.log, 120)
    with contextlib.closing(open_store(work.store)) as store:
        generation = Generations(store.records).get(work.manifest().generation)
        with use(store.records, generation.generation, "a server") as server:
            taken = work.last_cut()
            server.note_cut(taken)
            for seed, steps in ((1, 15), (2, 20)):
                append_events(events, click_rows(320, seed=seed))
                wait_until(lambda end=steps: work.published_steps()[-1:] == [end], work.log, 120)
            cuts = cuts_of(store.records, generation)
            awaited = [cut for cut in cuts if cut.version > taken]
            assert len(awaited) > 1
            store.stage(generation, awaited[lost].version, {awaited[lost].places[0]: b"lost"})
            work.await_line("is exported again")

            def has_it_again() -> bool:
                last = cuts_of(store.records, generation)[-1]
                return last.step == 20 and last.identity != cuts[-1].identity

            wait_until(has_it_again, work.log, 60)
            for cut in cuts_of(store.records, generation):
                assert list(read_blocks(store, generation, cut))
            server.note_cut(work.last_cut())
    work.stop(trainer)
    work.check_store()
