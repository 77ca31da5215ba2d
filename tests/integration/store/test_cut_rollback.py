"""What cuts replace is kept, bounded, and brought back as new cuts, on every store."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time

import pytest
from integration.store.trained_states import (
    assert_folded,
    changes_of,
    dense,
    export,
    full_export,
    roll_back,
    seen,
    state,
)

from hotrow.errors import FailedPreconditionError, NotFoundError
from hotrow.store.cut_rollback import reachable
from hotrow.store.cuts import cuts_of
from hotrow.store.deletion import delete_model
from hotrow.store.generations import Generations
from hotrow.store.incremental_export import export_changes
from hotrow.store.leases import lock_exports
from hotrow.store.readers import use
from hotrow.store.taken_cuts import fold_taken
from hotrow.store.undo import undos_of

KILLED = """
import os, signal, sys
from hotrow.store import cuts, open_store, undo
from hotrow.store.generations import Generations
from integration.store.trained_states import export, state

url, point = sys.argv[1:]
store = open_store(url)
(generation,) = Generations(store.records).all("m")
undo.BLOCKS_AT_ONCE = 4
calls = 0
stage = type(store).stage

def dies(self, generation, version, blocks):
    global calls
    stage(self, generation, version, blocks)
    calls += version >> 63
    if calls == 2:
        os.kill(os.getpid(), signal.SIGKILL)

def dies_before(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

if point == "keeping rows":
    type(store).stage = dies
elif point == "about to fold":
    type(store).put = dies_before
else:
    type(store).unstage = dies_before
export(store, generation, state(2), lock_seconds=0.5, undo_cuts=1)
"""


def versions(states):
    return [state.shown.version for state in states]


def staged_keys(redis_server):
    """Returns how many blocks of cuts a Redis has."""
    return sum(b"!" in key for key in redis_server.client().scan_iter(count=1000))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_kept_state_is_brought_back_bit_for_bit_and_left_again(number, store):
    generation = full_export(store)
    shown = [generation.row_version]
    for later in (1, 2, 3):
        shown.append(export(store, generation, state(later), undo_cuts=3).cut.version)
    assert versions(reachable(store, generation)) == shown[2::-1]
    back = roll_back(store, generation, shown[number])
    assert back.cut.step == 100 + number
    assert back.cut.version > shown[3]
    assert seen(store, generation) == (state(number)[0], number)
    assert_folded(store, generation, state(number))
    assert roll_back(store, generation, shown[3]).cut.step == 103
    assert seen(store, generation) == (state(3)[0], 3)
    assert_folded(store, generation, state(3))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_state_before_cuts_that_are_not_folded_is_brought_back(number, store):
    """A server holds them up, or a trainer has not folded them yet."""
    generation = full_export(store)
    shown = [generation.row_version]
    with use(store.records, generation.generation, "server") as server:
        for later in (1, 2, 3):
            shown.append(export(store, generation, state(later), undo_cuts=3).cut.version)
        assert [cut.folded for cut in cuts_of(store.records, generation)] == [False] * 3
        assert versions(reachable(store, generation)) == shown[2::-1]
        back = roll_back(store, generation, shown[number])
        assert back.cut.step == 100 + number
        assert seen(store, generation) == (state(number)[0], number)
        server.note_cut(back.cut.version)
    with lock_exports(store.records, "m") as lock:
        fold_taken(store, generation, lock)
    assert_folded(store, generation, state(number))


def test_dense_weights_of_an_earlier_cut_are_brought_back(store):
    generation = full_export(store)
    first = export(store, generation, state(1), undo_cuts=3).cut
    same = changes_of(state(2))
    with lock_exports(store.records, "m") as lock:
        second = export_changes(
            store,
            Generations(store.records).get(generation.generation),
            lock,
            dataclasses.replace(same, dense=first),
            wait_seconds=0.0,
            undo_cuts=3,
        ).cut
    assert second.dense_version == first.version
    export(store, generation, state(3), undo_cuts=3)
    roll_back(store, generation, second.version)
    assert seen(store, generation) == (state(2)[0], 1)
    assert_folded(store, generation, (state(2)[0], 1))


def test_as_much_is_kept_as_is_asked_for(store):
    generation = full_export(store)
    shown = [export(store, generation, state(n), undo_cuts=2).cut.version for n in (1, 2, 3, 4)]
    assert versions(reachable(store, generation)) == [shown[2], shown[1]]
    with pytest.raises(NotFoundError, match=rf"{shown[0]:016x} is no state .* {shown[2]:016x}, "):
        roll_back(store, generation, shown[0])
    with pytest.raises(FailedPreconditionError, match="is what servers show already"):
        roll_back(store, generation, shown[3])
    changed = cuts_of(store.records, generation)[-1]
    (undo,) = undos_of(store.records, generation)[-1:]
    assert undo.rows == changed.rows + changed.removed
    assert undo.rows * (16 + 16) + len(dense(0)) < undo.bytes < 2 * len(dense(0))
    export(store, generation, state(5), undo_cuts=1)
    assert versions(reachable(store, generation)) == [shown[3]]
    export(store, generation, state(6))
    assert reachable(store, generation) == []
    assert store.records.names("undo/") == []


def test_nothing_of_it_is_left_when_the_model_is_deleted(redis_server, store):
    generation = full_export(store)
    for number in (1, 2):
        export(store, generation, state(number), undo_cuts=2)
    with lock_exports(store.records, "m"):
        delete_model(store, "m", lambda generation: None)
    assert store.records.names("undo/") == []
    assert staged_keys(redis_server) == 0


def test_a_cut_that_servers_do_not_take_is_gone_back_from(store):
    generation = full_export(store)
    good = export(store, generation, state(1), undo_cuts=1).cut
    with use(store.records, generation.generation, "server") as lease:
        lease.note_cut(good.version)
        bad = export(store, generation, state(2), undo_cuts=1)
        assert [reader.holder for reader in bad.waiting_for] == ["server"]
        assert versions(reachable(store, generation))[0] == good.version
        back = roll_back(store, generation, good.version)
        assert back.cut.previous == bad.cut.version
        assert seen(store, generation) == (state(1)[0], 1)
        lease.note_cut(back.cut.version)
        export(store, generation, state(1), undo_cuts=1)
    assert_folded(store, generation, state(1))


def test_folding_what_is_left_drops_nothing_of_the_way_back(store):
    generation = full_export(store)
    for number in (1, 2):
        export(store, generation, state(number), undo_cuts=2)
    with use(store.records, generation.generation, "server"):
        export(store, generation, state(3), undo_cuts=2)
    before = versions(reachable(store, generation))
    assert len(before) == 3
    with pytest.raises(NotFoundError, match="is no state of generation"):
        roll_back(store, generation, 5)
    assert versions(reachable(store, generation)) == before
    roll_back(store, generation, generation.row_version)
    assert_folded(store, generation, state(0))
    assert len(undos_of(store.records, generation)) == 4
    assert set(before) < set(versions(reachable(store, generation)))
    export(store, generation, state(4), undo_cuts=2)
    assert len(undos_of(store.records, generation)) == 2


@pytest.mark.parametrize("number", [2, 3])
def test_training_goes_on_after_a_rollback(number, store):
    generation = full_export(store)
    good = export(store, generation, state(1), undo_cuts=2).cut
    export(store, generation, state(2), undo_cuts=2)
    roll_back(store, generation, good.version)
    export(store, generation, state(number), undo_cuts=2)
    assert seen(store, generation) == (state(number)[0], number)
    assert_folded(store, generation, state(number))


@pytest.mark.parametrize("point", ["keeping rows", "about to fold", "forgetting"])
def test_an_exporter_killed_while_it_keeps_rows_leaves_nothing_behind(
    point, redis_server, open_redis
):
    store = open_redis(redis_server.url)
    generation = full_export(store)
    first = export(store, generation, state(1), undo_cuts=1).cut
    paths = f"import sys; sys.path[:0] = {sys.path!r}\n"
    killed = subprocess.run(
        [sys.executable, "-c", paths + KILLED, redis_server.url, point],
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -9, killed.stderr
    time.sleep(0.6)  # its lock ends
    back = export(store, generation, state(2), wait_seconds=2.0, undo_cuts=1)
    assert_folded(store, generation, state(2))
    (undo,) = undos_of(store.records, generation)
    assert undo.complete
    cut = back.cut
    kept = len(undo.places) + len(undo.dense_places)
    assert staged_keys(redis_server) == len(cut.all_places) + kept
    roll_back(store, generation, first.version)
    assert_folded(store, generation, state(1))


def test_a_cut_that_is_folded_in_part_without_it_cannot_be_undone(store):
    generation = full_export(store)
    with use(store.records, generation.generation, "server"):
        cut = export(store, generation, state(1)).cut
    keys = next(iter(changes_of(state(1)).of_tables((10,))))[1].keys[:5]
    rows, _, _ = store.read(generation, 0, keys)
    store.put(generation, 0, keys, rows, keys.astype("uint64") * 0 + cut.version)
    export(store, generation, state(1), undo_cuts=1)
    assert cuts_of(store.records, generation)[-1].folded
    assert reachable(store, generation) == []
    assert store.records.names("undo/") == []
    assert Generations(store.records).get(generation.generation) == generation
