"""Incremental exports on every store: refused, committed, taken, folded, and killed anywhere."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import time

import pytest
from integration.store.trained_states import (
    RUN,
    assert_folded,
    changes_of,
    export,
    full_export,
    seen,
    state,
    write,
)

from hotrow import _native
from hotrow.errors import (
    DataLossError,
    FailedPreconditionError,
    ResourceExhaustedError,
)
from hotrow.lineage import Lineage, Start
from hotrow.store import cut_writing, open_store
from hotrow.store.cuts import cuts_of, read_blocks
from hotrow.store.generations import Generations
from hotrow.store.incremental_export import export_changes, fold_taken
from hotrow.store.leases import lock_exports
from hotrow.store.readers import use
from hotrow.store.spec import Origin, State

EXPORT = """
import os, signal, sys
from hotrow.store import cut_folding, cut_writing, cuts, open_store
from hotrow.store.generations import Generations
from integration.store.trained_states import export, state

url, point = sys.argv[1:]
store = open_store(url)
(generation,) = Generations(store.records).all("m")
cuts.BLOCKS_AT_ONCE = cut_writing.BLOCKS_AT_ONCE = cut_folding.BLOCKS_AT_ONCE = 4
cut_writing.ROWS_AT_ONCE_BYTES = 1

def dies(owner, name, call, before):
    method = getattr(owner, name)
    calls = 0
    def counted(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == call and before:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = method(*arguments, **options)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    setattr(owner, name, counted)

kind = type(store)
{
    "folding what is left": lambda: dies(kind, "put", 2, False),
    "staging": lambda: dies(kind, "stage", 3, False),
    "about to commit": lambda: dies(Generations, "commit", 1, True),
    "having committed": lambda: dies(Generations, "commit", 1, False),
    "folding": lambda: dies(kind, "put", 47, False),
    "about to set watermarks": lambda: dies(kind, "set_watermarks", 24, True),
    "having set watermarks": lambda: dies(kind, "set_watermarks", 24, False),
    "putting rows once more": lambda: dies(kind, "put", 48, False),
    "forgetting the cut before": lambda: dies(kind, "unstage", 1, True),
}[point]()
export(store, generation, state(2), lock_seconds=0.5)
print("alive")
"""
SEEN_BEFORE = ("folding what is left", "staging", "about to commit")
SEEN_AFTER = (
    "having committed",
    "folding",
    "about to set watermarks",
    "having set watermarks",
    "putting rows once more",
    "forgetting the cut before",
)


@pytest.fixture
def generation(store):
    return full_export(store)


def test_what_changed_reaches_the_store_bit_for_bit_and_cuts_before_are_forgotten(
    store, generation
):
    first = export(store, generation, state(1))
    assert first.committed
    assert first.waiting_for == ()
    assert (first.cut.step, first.cut.clocks, first.cut.lineage) == (101, (11,), "run")
    assert_folded(store, generation, state(1))
    assert seen(store, generation) == (state(1)[0], 1)
    second = export(store, generation, state(2))
    assert second.cut.previous == first.cut.version
    assert_folded(store, generation, state(2))
    assert seen(store, generation) == (state(2)[0], 2)
    assert set(store.staged(generation, first.cut.version, list(first.cut.all_places))) == {None}


def test_a_state_that_was_exported_is_nothing_new(store, generation):
    nothing = export(store, generation, state(0))
    assert (nothing.cut, nothing.committed) == (None, False)
    made = export(store, generation, state(1))
    again = export(store, generation, state(1))
    assert (again.committed, again.cut.version) == (False, made.cut.version)
    assert export(store, generation, state(1), dense_bytes=b"other").committed


def test_rows_are_folded_when_every_server_has_taken_them(store, generation):
    with (
        use(store.records, generation.generation, "fast") as fast,
        use(store.records, generation.generation, "slow") as slow,
    ):
        first = export(store, generation, state(1))
        assert [reader.holder for reader in first.waiting_for] == ["fast", "slow"]
        fast.note_cut(first.cut.version)
        # A server that has not taken it reads the same rows as before.
        assert seen(store, generation, up_to=generation.row_version) == (state(0)[0], 0)
        assert seen(store, generation) == (state(1)[0], 1)
        second = export(store, generation, state(2))
        assert [reader.holder for reader in second.waiting_for] == ["fast", "slow"]
        assert seen(store, generation, up_to=first.cut.version) == (state(1)[0], 1)
        assert seen(store, generation, up_to=generation.row_version) == (state(0)[0], 0)
        assert [c.folded for c in cuts_of(store.records, generation)] == [False, False]
        slow.note_cut(first.cut.version)
        again = export(store, generation, state(2))
        assert not again.committed
        # That of the first one stays beside the newest, which is not folded.
        assert [c.folded for c in cuts_of(store.records, generation)] == [True, False]
        assert seen(store, generation, up_to=first.cut.version) == (state(1)[0], 1)
        slow.note_cut(second.cut.version)
        fast.note_cut(second.cut.version)
        assert export(store, generation, state(2)).waiting_for == ()
    assert_folded(store, generation, state(2))


def test_an_export_waits_for_servers_and_folds_when_the_last_has_taken_it(store, generation):
    lines = []
    with use(store.records, generation.generation, "server") as lease:

        def take():
            while not (cuts := cuts_of(store.records, generation)):
                time.sleep(0.05)
            time.sleep(0.3)
            lease.note_cut(cuts[-1].version)

        server = threading.Thread(target=take)
        server.start()
        with lock_exports(store.records, "m") as lock:
            outcome = export_changes(
                store,
                generation,
                lock,
                changes_of(state(1)),
                wait_seconds=30,
                report=lines.append,
            )
        server.join()
    assert outcome.waiting_for == ()
    assert "waiting for 1 of 1 servers to take step 101" in lines
    assert_folded(store, generation, state(1))


def test_blocks_stay_for_a_server_that_begins_while_cuts_are_folded(store, generation):
    records, name = store.records, generation.generation
    with use(records, name, "slow"):
        export(store, generation, state(1))
        export(store, generation, state(2))
    cuts = cuts_of(records, generation)
    began = []

    def report(line):
        if line.startswith("step 102: 0 of ") and not began:
            began.append(use(records, name, "new"))

    with lock_exports(records, "m") as lock:
        fold_taken(store, generation, lock, report)
    (server,) = began
    with server:
        assert [c.folded for c in cuts_of(records, generation)] == [True, True]
        for cut in cuts:
            assert list(read_blocks(store, generation, cut))
        assert seen(store, generation) == (state(2)[0], 2)
        server.note_cut(cuts[1].version)
        assert not export(store, generation, state(2)).committed
    assert_folded(store, generation, state(2))


def test_rows_stay_for_a_reader_that_takes_no_cuts_and_nobody_waits_for_it(store, generation):
    records, name = store.records, generation.generation
    with use(records, name, "batch", follows_cuts=False), use(records, name, "server") as server:
        server.note_cut(2**62)
        begun = time.monotonic()
        outcome = export(store, generation, state(1), wait_seconds=30)
        assert time.monotonic() - begun < 20
        assert outcome.waiting_for == ()
        assert [reader.holder for reader in outcome.held_by] == ["batch"]
        assert seen(store, generation, up_to=generation.row_version) == (state(0)[0], 0)
        assert seen(store, generation) == (state(1)[0], 1)
    assert export(store, generation, state(2)).held_by == ()
    assert_folded(store, generation, state(2))


def test_what_does_not_go_on_from_the_last_export_is_refused(store, generation):
    def refused(said, trained=None, lineage=RUN):
        with pytest.raises(FailedPreconditionError, match=said):
            export(store, generation, trained or state(2), lineage=lineage)

    export(store, generation, state(1))
    refused("another run, or resumed from before", lineage=Lineage((Start("other", 0),)))
    refused("another run, or resumed", lineage=Lineage())
    refused("another run, or resumed", lineage=Lineage((Start("run", 0), Start("again", 100))))
    refused(r"at step 100, the last export at step 101", state(0))
    assert len(cuts_of(store.records, generation)) == 1
    resumed = Lineage((Start("run", 0), Start("again", 101)))
    export(store, generation, state(2), lineage=resumed)
    refused("another run, or resumed", state(2), RUN)
    assert_folded(store, generation, state(2))


@pytest.mark.parametrize(
    ("origin", "said"),
    [({"lineage": ""}, "does not say which training"), ({"top": 9}, "only the 9 most frequent")],
    ids=["an unknown run", "the most used rows only"],
)
def test_a_full_export_that_nothing_can_follow_is_reported(tmp_path, origin, said):
    store = open_store(f"file://{tmp_path}/store", create=True)
    generation = full_export(store, **origin)
    with pytest.raises(FailedPreconditionError, match=f"{said}.*make a full export"):
        export(store, generation, state(1))
    store.close()


def test_a_generation_of_an_older_hotrow_is_reported_and_one_that_is_not_complete(tmp_path):
    store = open_store(f"file://{tmp_path}/store", create=True)
    generation = full_export(store)
    name = f"generation/{generation.generation}"
    text = store.records.get(name)
    old = generation.model_dump_json(exclude={"origin"})
    assert store.records.swap(name, text, old)
    with pytest.raises(FailedPreconditionError, match="older version of Hotrow"):
        export(store, generation, state(1))
    writing = generation.model_copy(update={"state": State.WRITING}).model_dump_json()
    assert store.records.swap(name, old, writing)
    with pytest.raises(FailedPreconditionError, match="is writing, not complete"):
        export(store, generation, state(1))
    store.close()


def test_a_store_that_lost_rows_takes_no_changes(redis_server):
    store = open_store(redis_server.url)
    generation = full_export(store)
    markers, slots = _native.store_names(generation.shards, generation.number)
    store.client.call(slots[3], "UNLINK", markers[3])
    with pytest.raises(DataLossError, match="has lost 1 of 16 shards; make a full export"):
        export(store, generation, state(1))
    assert cuts_of(store.records, generation) == []
    store.close()


def test_a_full_store_takes_no_changes_and_keeps_what_is_there(redis_servers):
    server = redis_servers.standalone()
    store = open_store(server.url)
    generation = full_export(store)
    export(store, generation, state(1))
    used = server.call("INFO", "memory")["used_memory"]
    server.call("CONFIG", "SET", "maxmemory", str(used + 2_000_000))
    large = bytes(8_000_000)
    with pytest.raises(ResourceExhaustedError, match="is full"):
        export(store, generation, state(2), dense_bytes=large)
    assert store.records.names("staging/") == []
    assert seen(store, generation) == (state(1)[0], 1)
    server.call("CONFIG", "SET", "maxmemory", "0")
    assert export(store, generation, state(2), dense_bytes=large).committed
    assert_folded(store, generation, state(2))
    store.close()


def test_a_full_export_of_the_same_rows_does_not_take_a_generation_with_cuts(store, generation):
    export(store, generation, state(1))
    again = full_export(store)
    assert again.generation != generation.generation
    assert cuts_of(store.records, again) == []
    # The older one takes changes still, and they are its own.
    made = export(store, generation, state(2))
    assert [c.version for c in cuts_of(store.records, generation)] == [made.cut.version]
    assert seen(store, again) == (state(0)[0], 0)


def test_a_full_export_that_is_taken_as_it_is_records_the_training_of_now(store):
    first = full_export(store)
    again = full_export(store, lineage="another", clocks=(12,))
    assert again.generation == first.generation
    assert Generations(store.records).get(again.generation).origin == Origin(
        lineage="another", clocks=(12,)
    )


def test_of_two_exporters_one_is_refused_and_the_other_ends(store, generation):
    def both(since):
        with pytest.raises(FailedPreconditionError, match="is held by export-"):
            export(store, generation, state(1))
        yield from changes_of(state(2)).of_tables(since)

    with lock_exports(store.records, "m") as lock:
        changes = dataclasses.replace(changes_of(state(2)), of_tables=both)
        export_changes(store, generation, lock, changes, wait_seconds=0)
    assert_folded(store, generation, state(2))


@pytest.mark.parametrize("store_url", ["lmdb", "redis"], indirect=True)
@pytest.mark.parametrize("point", SEEN_BEFORE + SEEN_AFTER)
def test_an_export_that_is_killed_changes_nothing_halfway_and_the_next_completes_it(
    store, store_url, generation, point, pytestconfig, monkeypatch
):
    monkeypatch.setattr(cut_writing, "ROWS_AT_ONCE_BYTES", 1)  # many blocks
    # One that was killed before has left a cut that is not folded.
    with lock_exports(store.records, "m") as lock:
        write(store, generation, lock, 1)
    tests = pytestconfig.rootpath / "tests"
    paths = f"import sys; sys.path.insert(0, {str(tests)!r})\n"
    child = subprocess.run(
        [sys.executable, "-c", paths + EXPORT, store_url, point], capture_output=True, text=True
    )
    assert child.returncode == -9, child.stdout + child.stderr
    number = 1 if point in SEEN_BEFORE else 2
    assert seen(store, generation) == (state(number)[0], number)
    time.sleep(0.6)  # its lease ends
    outcome = export(store, generation, state(2))
    assert outcome.committed == (point in SEEN_BEFORE)
    assert seen(store, generation) == (state(2)[0], 2)
    assert_folded(store, generation, state(2))
