"""States of a training of one table, exported to a store, and what a server sees of them.

A state is (rows by key, clocks by key, its number); the full export is of state 0.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from stored_rows import ArrayRows, exported, float_rows, make_live, some_keys

from hotrow import _native
from hotrow.hold_bounds import HoldBounds
from hotrow.lineage import Lineage, Start
from hotrow.store.cut_blocks import TOMBSTONE
from hotrow.store.cut_rollback import roll_back_to_cut
from hotrow.store.cut_writing import write_cut
from hotrow.store.cuts import TableChanges, cuts_of, dense_of, read_blocks
from hotrow.store.full_export import write_generation
from hotrow.store.generations import Generations
from hotrow.store.incremental_export import Changes, export_changes
from hotrow.store.leases import lock_exports
from hotrow.store.published import PublishedLog
from hotrow.store.spec import Origin

RUN = Lineage((Start("run", 0),))
KEYS, DIM = 2000, 4


def state(number):
    """Returns key -> row (bytes), and the clock of each, of the n-th state of training."""
    keys = some_keys(KEYS + 200)
    rows = {int(key): row for key, row in zip(keys[:KEYS], float_rows(KEYS, DIM), strict=True)}
    clocks = dict.fromkeys(rows, 10)
    for step in range(1, number + 1):
        # Some keys change, some come, some go; those of the steps overlap.
        changed = [*keys[step * 50 : step * 50 + 600], *keys[KEYS + (step - 1) * 90 :][:90]]
        new = float_rows(len(changed), DIM, seed=step)
        for key, row in zip(changed, new, strict=True):
            rows[int(key)], clocks[int(key)] = row, 10 + step
        for key in keys[step * 40 : step * 40 + 45]:
            rows.pop(int(key), None)
            clocks.pop(int(key), None)
    return {key: row.tobytes() for key, row in rows.items()}, clocks, number


def dense(number):
    return bytes([number]) * 1_500_000


def changes_of(trained, lineage=RUN, dense_bytes=None):
    rows, clocks, number = trained

    def of_tables(since):
        changed = np.array([key for key in rows if clocks[key] > since[0]], np.int64)
        gone = np.array([int(k) for k in some_keys(KEYS + 200) if int(k) not in rows], np.int64)
        if number and len(changed):
            content = np.frombuffer(b"".join(rows[int(k)] for k in changed), np.uint8)
            for part in range(3):
                piece = slice(part, None, 3)
                yield (
                    0,
                    TableChanges(
                        np.ascontiguousarray(changed[piece]),
                        np.ascontiguousarray(content.reshape(-1, 4 * DIM)[piece]),
                        np.ascontiguousarray(gone[piece]),
                    ),
                )

    return Changes(
        step=100 + number,
        lineage=lineage,
        clocks=(10 + number,),
        dense=dense(number) if dense_bytes is None else dense_bytes,
        dense_as_exported=number == 0,
        of_tables=of_tables,
    )


def write(store, generation, lock, number):
    """Commits the changes from the state before to the n-th one; folds nothing."""
    changes = changes_of(state(number))
    return write_cut(
        store,
        generation,
        lock,
        changes=changes.of_tables((9 + number,)),
        dense=changes.dense,
        step=changes.step,
        clocks=changes.clocks,
        lineage="run",
    )


def export(
    store,
    generation,
    trained,
    *,
    lock_seconds=15.0,
    wait_seconds=0.0,
    undo_cuts=0,
    bounds=HoldBounds(),  # noqa: B008 (frozen)
    **options,
):
    with lock_exports(store.records, "m", seconds=lock_seconds) as lock:
        return export_changes(
            store,
            Generations(store.records).get(generation.generation),
            lock,
            changes_of(trained, **options),
            wait_seconds=wait_seconds,
            undo_cuts=undo_cuts,
            bounds=bounds,
        )


def roll_back(store, generation, to, *, wait_seconds=0.0, published=None):
    with lock_exports(store.records, "m") as lock:
        return roll_back_to_cut(
            store,
            Generations(store.records).get(generation.generation),
            lock,
            to,
            published=published or PublishedLog(None, generation.generation),
            exported_dense=lambda: dense(0),
            wait_seconds=wait_seconds,
        )


def full_export(store, version=1, **origin):
    keys = some_keys(KEYS + 200)[:KEYS]
    table = ArrayRows("t", keys, float_rows(KEYS, DIM))
    origin = Origin(**{"lineage": "run", "clocks": (10,), **origin})
    what = dataclasses.replace(exported(version), step=100, origin=origin)
    with lock_exports(store.records, "m") as lock:
        generation = write_generation(store, what, [table], lock, shards=16)
        make_live(store, generation)
    return generation


def seen(store, generation, up_to=None):
    """Returns key -> row (bytes) that a server answers by, and its dense weights' first byte."""
    keys = some_keys(KEYS + 200)
    rows, _, states = store.read(generation, 0, keys)
    found = {int(k): r.tobytes() for k, r, s in zip(keys, rows, states, strict=True) if s == 1}
    cuts = [c for c in cuts_of(store.records, generation) if up_to is None or c.version <= up_to]
    for cut in cuts:
        if cut.folded:
            continue
        for block in read_blocks(store, generation, cut, cut.places):
            for key, row, version in zip(block.keys, block.rows, block.versions, strict=True):
                if version & TOMBSTONE:
                    found.pop(int(key), None)
                else:
                    found[int(key)] = row.tobytes()
    return found, dense_of(store, generation, cuts[-1])[0] if cuts else 0


def assert_folded(store, generation, trained):
    """Checks that the store holds a state of training bit for bit, and nothing else."""
    (cut,) = cuts_of(store.records, generation)
    assert cut.folded
    assert store.records.names("staging/") == []
    keys = np.array(list(trained[0]), np.int64)
    rows = np.frombuffer(b"".join(trained[0].values()), np.uint8).reshape(-1, 4 * DIM)
    wanted = _native.record_digests(keys, rows, generation.shards)
    np.testing.assert_array_equal(store.digests(generation, 0), wanted)
    assert (store.watermarks(generation) == cut.version).all()
