"""Incremental exports onto stores that lost rows or blocks of earlier ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from integration.store.trained_states import (
    DIM,
    RUN,
    assert_folded,
    changes_of,
    export,
    full_export,
    seen,
    state,
)

from hotrow import _native
from hotrow.errors import (
    FailedPreconditionError,
)
from hotrow.lineage import Lineage, Start
from hotrow.store.cuts import cuts_of
from hotrow.store.deletion import delete_generation
from hotrow.store.generations import Generations
from hotrow.store.incremental_export import export_changes
from hotrow.store.leases import lock_exports
from hotrow.store.readers import use
from hotrow.store.taken_cuts import fold_taken


@pytest.fixture
def generation(store):
    return full_export(store)


def test_rows_that_a_failover_lost_after_folding_are_folded_again(store, generation):
    made = export(store, generation, state(1))
    lose_what_was_folded(store, generation)
    again = export(store, generation, state(1))
    assert (again.committed, again.cut.version) == (False, made.cut.version)
    assert_folded(store, generation, state(1))
    export(store, generation, state(2))
    lose_what_was_folded(store, generation)
    # No cut brings the rows of the first one again: all that changed since the full export.
    healed = export(store, generation, state(2))
    assert healed.committed
    assert healed.cut.previous == 0
    assert_folded(store, generation, state(2))


@pytest.mark.parametrize("dense", [False, True], ids=["of rows", "of dense weights"])
@pytest.mark.parametrize("folded", [False, True], ids=["not folded", "folded"])
def test_what_a_cut_brought_that_lost_blocks_comes_again(store, generation, folded, dense):
    export(store, generation, state(1))
    with use(store.records, generation.generation, "slow") as slow:
        if folded:
            slow.note_cut(2**62)
        broken = export(store, generation, state(2)).cut
        place = broken.dense_places[0] if dense else broken.places[7]
        (block,) = store.staged(generation, broken.version, [place])
        store.stage(generation, broken.version, {place: block[:-1]})
        again = export(store, generation, state(2))
        assert again.committed
        assert again.cut.version > broken.version
        # It goes on from what is whole: the cut before, or, when that was forgotten, all changes.
        assert (again.cut.rows > broken.rows) == folded
        assert seen(store, generation) == (state(2)[0], 2)
        slow.note_cut(again.cut.version)
        assert not export(store, generation, state(2)).committed
    assert_folded(store, generation, state(2))


@pytest.mark.parametrize("folded", [False, True], ids=["not folded", "folded"])
def test_what_does_not_go_on_from_a_cut_that_was_withdrawn_is_refused(store, generation, folded):
    def refused(said, trained, lineage=RUN):
        with pytest.raises(FailedPreconditionError, match=said):
            export(store, generation, trained, lineage=lineage)

    with use(store.records, generation.generation, "server") as server:
        first = export(store, generation, state(1)).cut
        broken = export(store, generation, state(2)).cut
        server.note_cut(broken.version if folded else first.version)
        if folded:
            fold_all(store, generation)
        place = broken.places[7]
        (block,) = store.staged(generation, broken.version, [place])
        store.stage(generation, broken.version, {place: block[:-1]})
        # Training went on from the state before the cut that the server shows.
        given_up = Lineage((Start("run", 0), Start("again", 101)))
        refused(r"go on from what was last exported, step 102: .*full export", state(3), given_up)
        withdraw_and_fail(store, generation)
        assert broken.version not in [c.version for c in cuts_of(store.records, generation)]
        refused(r"last exported, step 102 \(in a cut that lost.*full export", state(3), given_up)
        refused(r"at step 101, the last export at step 102 \(in a cut that lost", state(1))
        goes_on = Lineage((Start("run", 0), Start("again", 102)))
        assert export(store, generation, state(3), lineage=goes_on).committed
        assert seen(store, generation) == (state(3)[0], 3)
    export(store, generation, state(3), lineage=goes_on)
    assert_folded(store, generation, state(3))
    other = full_export(store, version=2)
    assert Generations(store.records).model("m").live == other.generation
    delete_generation(store, generation)
    assert store.records.names("withdrawn/") == []


def test_a_full_export_does_not_take_a_generation_whose_cut_was_withdrawn(store, generation):
    with use(store.records, generation.generation, "server"):
        broken = export(store, generation, state(1)).cut
        store.unstage(generation, broken.version, list(broken.all_places))
        withdraw_and_fail(store, generation)
    assert cuts_of(store.records, generation) == []
    assert full_export(store).generation != generation.generation


def withdraw_and_fail(store, generation):
    """Does what an export does that is interrupted after it withdrew what lost blocks."""

    def interrupted(since):
        raise KeyboardInterrupt

    changes = dataclasses.replace(changes_of(state(2)), of_tables=interrupted)
    with lock_exports(store.records, "m") as lock, pytest.raises(KeyboardInterrupt):
        export_changes(store, generation, lock, changes, wait_seconds=0)


def fold_all(store, generation):
    with lock_exports(store.records, "m") as lock:
        fold_taken(store, generation, lock)


def lose_what_was_folded(store, generation):
    """Brings rows and markers back to the full export, as a replica that is far behind does."""
    rows, _, _ = state(0)
    keys = np.array(list(rows), np.int64)
    content = np.frombuffer(b"".join(rows.values()), np.uint8).reshape(-1, 4 * DIM)
    store.write(generation, 0, keys, np.ascontiguousarray(content))
    sums = _native.record_digests(keys, content, generation.shards)
    store.set_markers(generation, [sums])
