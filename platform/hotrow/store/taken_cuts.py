"""Folds the cuts that all readers have taken into the rows of their generation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from hotrow.errors import DataLossError
from hotrow.hold_bounds import HoldBounds
from hotrow.store.cut_folding import EarlierRowsLostError, fold
from hotrow.store.cuts import CutRecord, cuts_of, forget_cuts
from hotrow.store.holding import Hold, Readers
from hotrow.store.leases import Lease, WatchedLease
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation
from hotrow.store.undo import keep_newest_undos, keep_replaced

_MOST_REWINDS = 2  # of a store during a fold, before it is left to the next export
_FULL = "make a full export"
_BYTES_AT_ONCE = 64 << 20  # of cuts that are folded at once


def fold_taken(
    store: RowStore,
    generation: Generation,
    lock: Lease | WatchedLease,
    report: Callable[[str], None] = lambda line: None,
    *,
    undo_cuts: int = 0,
    bounds: HoldBounds = HoldBounds(),  # noqa: B008 (frozen)
) -> list[Hold]:
    """Folds the cuts that all readers have taken, and deletes those before the last of them.

    Readers that hold that up beyond `bounds` are overruled; they are returned. What the newest
    `undo_cuts` of the cuts replace is kept for a rollback; the others are folded at once, so a key
    that several of them change is written once.

    A cut that a server has started to read meanwhile stays until the next call.

    Raises:
        DataLossError: rows of a deleted cut no longer exist.
    """
    for _ in range(_MOST_REWINDS):
        try:
            return _fold_taken(store, generation, lock, report, undo_cuts, bounds)
        except EarlierRowsLostError as err:
            report(str(err))
    return _fold_taken(store, generation, lock, report, undo_cuts, bounds)


def _fold_taken(
    store: RowStore,
    generation: Generation,
    lock: Lease | WatchedLease,
    report: Callable[[str], None],
    undo_cuts: int,
    bounds: HoldBounds,
) -> list[Hold]:
    cuts = cuts_of(store.records, generation)
    if not cuts:
        return []
    marks = store.watermarks(generation)
    lost = int((marks < np.uint64(cuts[0].previous)).sum())
    if lost:
        raise DataLossError(
            f"{store.url}: {lost} of {generation.shards} shards of generation "
            f"{generation.generation} have lost rows of earlier exports, in a failover perhaps; "
            f"{_FULL}"
        )

    there = Readers(store.records, generation, cuts, bounds, report)
    done: list[CutRecord] = []
    ready: list[CutRecord] = []
    for cut in cuts:
        # Also a folded cut that a failover has undone.
        if cut.folded and not bool((marks < np.uint64(cut.version)).any()):
            done.append(cut)
            continue
        lock.check()
        if not there.let_fold(cut.version):
            break
        ready.append(cut)
    # What a cut that is folded again replaced is kept, or not known any more.
    new = list(itertools.takewhile(lambda cut: not cut.folded, reversed(ready)))
    undone = new[:undo_cuts][::-1]
    for together in _batches(ready[: len(ready) - len(undone)]):
        done += _fold(store, generation, lock, together, report)
    for cut in undone:
        lock.check()
        keep_replaced(store, generation, cut, done[-1] if done else None)
        done += _fold(store, generation, lock, [cut], report)
    lock.check()
    # A reader may be reading a cut's blocks; the next export deletes that cut.
    oldest = there.oldest_needed()
    forget_cuts(
        store,
        generation,
        [cut for cut, following in itertools.pairwise(done) if following.version <= oldest],
    )
    lock.check()
    keep_newest_undos(store, generation, undo_cuts)
    return there.overruled


def _batches(cuts: list[CutRecord]) -> Iterator[list[CutRecord]]:
    """Yields the cuts that are folded at once: each shard's rows of them are in memory together."""
    batch: list[CutRecord] = []
    for cut in cuts:
        if batch and sum(one.bytes for one in batch) + cut.bytes > _BYTES_AT_ONCE:
            yield batch
            batch = []
        batch.append(cut)
    if batch:
        yield batch


def _fold(
    store: RowStore,
    generation: Generation,
    lock: Lease | WatchedLease,
    cuts: list[CutRecord],
    report: Callable[[str], None],
) -> list[CutRecord]:
    def folding(done: int, of: int) -> None:
        lock.check()
        report(f"step {cuts[-1].step}: {done} of {of} blocks folded")

    return fold(store, generation, cuts, folding)
