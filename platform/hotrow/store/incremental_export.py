"""Exports changes of training: commits a cut, waits until servers take it, then folds it.

Docs/design/0008-cuts.md. An exporter that is killed at any point does not change what servers read;
the next export continues from the remains.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hotrow.errors import (
    DataLossError,
    FailedPreconditionError,
    HotrowError,
    ResourceExhaustedError,
)
from hotrow.lineage import Lineage
from hotrow.norms import GateError, Norm
from hotrow.store.cut_folding import EarlierRowsLostError, fold
from hotrow.store.cuts import (
    CutRecord,
    TableChanges,
    cuts_of,
    discard_unfinished,
    forget_cut,
    note_withdrawn,
    read_blocks,
    withdrawn_from,
    write_cut,
)
from hotrow.store.leases import Lease, Reader, readers
from hotrow.store.lost_cuts import LostCut, find_lost, withdraw_rowless
from hotrow.store.published import PublishedLog
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation, Origin, State
from hotrow.store.undo import keep_newest_undos, keep_replaced

_LOOK_SECONDS = 0.1
_MOST_REWINDS = 2  # of a store during a fold, before it is left to the next export
_FULL = "make a full export"


@dataclass(frozen=True)
class Changes:
    """A state of training, and the changes up to it.

    Attributes:
        step: training step.
        lineage: lineage of the training.
        clocks: clocks of the tables, in the order of the generation.
        dense: the dense weights as opaque bytes.
        dense_as_exported: whether they are those of the full export.
        of_tables: called with clocks of the tables; returns (number of a table, its changes since).
        norms: called after all of these; returns norms, or raises GateError.
        forced: whether servers take the changes even if a value is not finite.
    """

    step: int
    lineage: Lineage
    clocks: tuple[int, ...]
    dense: bytes
    dense_as_exported: bool
    of_tables: Callable[[Sequence[int]], Iterable[tuple[int, TableChanges]]]
    norms: Callable[[], tuple[Norm, ...]] = tuple
    forced: bool = False


@dataclass(frozen=True)
class Outcome:
    """The outcome of an incremental export.

    Attributes:
        cut: the newest cut now; None: no changes since the full export.
        committed: whether the cut is new; otherwise nothing had changed.
        waiting_for: readers that have not taken the cut in time; the next export folds it.
        held_by: readers that take no cuts and read earlier rows; the next export folds it.
    """

    cut: CutRecord | None
    committed: bool
    waiting_for: tuple[Reader, ...] = ()
    held_by: tuple[Reader, ...] = ()


def export_changes(
    store: RowStore,
    generation: Generation,
    lock: Lease,
    changes: Changes,
    *,
    wait_seconds: float,
    undo_cuts: int = 0,
    report: Callable[[str], None] = lambda line: None,
    committed: Callable[[CutRecord], None] = lambda cut: None,
    published: PublishedLog | None = None,
) -> Outcome:
    """Exports the changes since the last export of a generation to its servers.

    Args:
        store: the store.
        generation: with its current record.
        lock: the exporter's lease of the model.
        changes: changes up to the state of training that servers should show.
        wait_seconds: how long to wait until all servers have taken the cut.
        undo_cuts: for how many of the newest cuts to keep what they replace.
        report: called with lines of progress.
        committed: called with the cut once servers can read it.
        published: cuts of the generation so far, by which a store is found that went back in time.

    Raises:
        FailedPreconditionError: the changes do not continue from the exported state, or the lease
            was lost.
        DataLossError: the store has lost rows.
        UnavailableError, ResourceExhaustedError: the store does not answer, or is full.
    """
    if generation.state is not State.COMPLETE:
        raise FailedPreconditionError(
            f"generation {generation.generation} is {generation.state}, not complete; {_FULL}"
        )
    published = PublishedLog(None, "") if published is None else published
    lost = find_lost(store, generation, published)
    _check_goes_on(store, generation, cuts_of(store.records, generation), changes, lost)
    missing = store.missing_markers(generation)
    if missing:
        raise DataLossError(
            f"{store.url}: generation {generation.generation} has lost {len(missing)} of "
            f"{generation.shards} shards; {_FULL}"
        )
    store.check_safe_for_rows()
    # Finishes what an earlier export left, as far as that needs no waiting.
    discard_unfinished(store, generation)
    base = withdraw_rowless(store, generation, lock, published, changes.lineage, report)
    _forget_broken(store, generation, lock, report)
    fold_taken(store, generation, lock, report, undo_cuts=undo_cuts)
    cuts = cuts_of(store.records, generation)
    since = _check_goes_on(store, generation, cuts, changes, lost)
    after = cuts[-1] if cuts and base is None else None
    if base is not None:
        since = base.clocks
    if lost is not None:
        report(f"the store went back in time and has lost step {lost.step}: it is exported again")
    if _is_new(generation, cuts, changes):
        try:
            cut = write_cut(
                store,
                generation,
                lock,
                changes=changes.of_tables(since),
                dense=changes.dense,
                step=changes.step,
                clocks=changes.clocks,
                lineage=changes.lineage.id,
                norms=changes.norms,
                forced=changes.forced,
                previous=0 if base is None else base.version,
                after=after,
                # A clock that was ahead gave it a number of later than now.
                above=max((state.version for state in published.states()), default=0),
            )
        except (ResourceExhaustedError, GateError):
            # No export resumes it, and other data may need the room.
            with contextlib.suppress(HotrowError):
                lock.check()
                discard_unfinished(store, generation)
            raise
        published.append(cut)
        committed(cut)
        is_new = True
    elif not cuts:
        return Outcome(None, False)
    else:
        cut, is_new = cuts[-1], False
    return finish_cut(
        store, generation, lock, cut, wait_seconds, report, undo_cuts=undo_cuts, is_new=is_new
    )


def finish_cut(
    store: RowStore,
    generation: Generation,
    lock: Lease,
    cut: CutRecord,
    wait_seconds: float,
    report: Callable[[str], None],
    *,
    undo_cuts: int,
    is_new: bool = True,
) -> Outcome:
    """Waits until servers take a committed cut, then folds it; see `export_changes`."""
    behind = _wait_until_taken(store, generation, cut, lock, wait_seconds, report)
    fold_taken(store, generation, lock, report, undo_cuts=undo_cuts)
    return Outcome(
        cut,
        is_new,
        waiting_for=tuple(reader for reader in behind if reader.follows_cuts),
        held_by=tuple(reader for reader in behind if not reader.follows_cuts),
    )


def _check_goes_on(
    store: RowStore,
    generation: Generation,
    cuts: Sequence[CutRecord],
    changes: Changes,
    lost: LostCut | None,
) -> tuple[int, ...]:
    """Returns the clocks of the tables in the last export, from which the changes continue.

    Raises:
        FailedPreconditionError: they do not continue from it.
    """
    origin = generation.origin
    last: CutRecord | Origin | None = cuts[-1] if cuts else origin
    step = cuts[-1].step if cuts else generation.step
    if origin is None or last is None or not last.lineage:
        raise FailedPreconditionError(
            f"generation {generation.generation} does not say which training it shows, as an "
            f"older version of Hotrow wrote it or its checkpoint; {_FULL}"
        )
    if origin.top is not None:
        raise FailedPreconditionError(
            f"the version has only the {origin.top} most frequent rows of each table (--top), and "
            f"which ones these are changes; {_FULL} again"
        )
    shown = [(last.lineage, step, "")]
    withdrawn = withdrawn_from(store.records, generation)
    if withdrawn is not None:
        # Servers that show the cut keep its rows until a later cut replaces them.
        what = " (in a cut that lost blocks since, and that servers may show)"
        shown.append((withdrawn.lineage, withdrawn.step, what))
    if lost is not None:
        what = " (in a cut that the store has lost as it went back in time)"
        shown.append((lost.lineage, lost.step, what))
    for lineage, of_step, what in shown:
        goes_on = changes.lineage.descends_from(lineage, of_step)
        if not goes_on and changes.step < of_step:
            raise FailedPreconditionError(
                f"the training at step {changes.step} comes before what was last exported, step "
                f"{of_step}{what}, or is another run, or resumed from before that; an incremental "
                f"export goes forward only: {_FULL}"
            )
        if not goes_on:
            raise FailedPreconditionError(
                f"the training at step {changes.step} did not go on from what was last exported, "
                f"step {of_step}{what}: it is another run, or resumed from before that; {_FULL}"
            )
        if changes.step < of_step:
            raise FailedPreconditionError(
                f"the training is at step {changes.step}, the last export at step "
                f"{of_step}{what}; export a later one, or {_FULL}"
            )
    return last.clocks


def fold_taken(
    store: RowStore,
    generation: Generation,
    lock: Lease,
    report: Callable[[str], None] = lambda line: None,
    *,
    undo_cuts: int = 0,
) -> None:
    """Folds the cuts that all servers have taken, and deletes those before the last of them.

    What the newest `undo_cuts` of them replace is kept for a rollback.

    A cut that a server has started to read meanwhile stays until the next call.

    Raises:
        DataLossError: rows of a deleted cut no longer exist.
    """
    for _ in range(_MOST_REWINDS):
        try:
            _fold_taken(store, generation, lock, report, undo_cuts)
            return
        except EarlierRowsLostError as err:
            report(str(err))
    _fold_taken(store, generation, lock, report, undo_cuts)


def _fold_taken(
    store: RowStore,
    generation: Generation,
    lock: Lease,
    report: Callable[[str], None],
    undo_cuts: int,
) -> None:
    cuts = cuts_of(store.records, generation)
    if not cuts:
        return
    marks = store.watermarks(generation)
    lost = int((marks < np.uint64(cuts[0].previous)).sum())
    if lost:
        raise DataLossError(
            f"{store.url}: {lost} of {generation.shards} shards of generation "
            f"{generation.generation} have lost rows of earlier exports, in a failover perhaps; "
            f"{_FULL}"
        )

    def another_before(version: int) -> bool:
        # Read again each time: folding takes long, and servers start meanwhile.
        return any(r.cut < version for r in readers(store.records, generation.generation))

    done: list[CutRecord] = []
    for cut in cuts:
        # Also for a folded cut that a failover has undone.
        if not cut.folded or bool((marks < np.uint64(cut.version)).any()):
            if another_before(cut.version):
                break

            def folding(done: int, of: int, cut: CutRecord = cut) -> None:
                lock.check()
                report(f"step {cut.step}: {done} of {of} blocks folded")

            if undo_cuts and not cut.folded:
                lock.check()
                keep_replaced(store, generation, cut, done[-1] if done else None)
            fold(store, generation, cut, folding)
        done.append(cut)
    for cut, following in itertools.pairwise(done):
        lock.check()
        if another_before(following.version):
            break  # it may be reading this cut's blocks; the next export deletes it
        forget_cut(store, generation, cut)
    lock.check()
    keep_newest_undos(store, generation, undo_cuts)


def _forget_broken(
    store: RowStore, generation: Generation, lock: Lease, report: Callable[[str], None]
) -> None:
    """Deletes cuts with lost or damaged blocks, and later ones.

    A failover may lose blocks that were read back before the commit. The next cut contains the
    changes of these cuts again, because it continues from the cut before them.
    """
    cuts = cuts_of(store.records, generation)
    for i, cut in enumerate(cuts):
        try:
            # Also for a folded cut: a server that has not taken it yet lays its blocks over the
            # rows.
            for _ in read_blocks(store, generation, cut):
                pass
        except DataLossError as err:
            report(f"step {cut.step} is exported again: {err}")
            lock.check()
            note_withdrawn(store.records, generation, cuts[-1])
            for broken in reversed(cuts[i:]):
                lock.check()
                forget_cut(store, generation, broken)
            return


def _is_new(generation: Generation, cuts: Sequence[CutRecord], changes: Changes) -> bool:
    """Returns whether servers would answer differently with the changes."""
    origin = generation.origin
    assert origin is not None  # it was checked
    if not cuts:
        known = (generation.step, origin.clocks)
        return known != (changes.step, changes.clocks) or not changes.dense_as_exported
    last = cuts[-1]
    dense = hashlib.sha256(changes.dense).hexdigest()
    return (last.step, last.clocks, last.dense_sha256) != (changes.step, changes.clocks, dense)


def _wait_until_taken(
    store: RowStore,
    generation: Generation,
    cut: CutRecord,
    lock: Lease,
    seconds: float,
    report: Callable[[str], None],
) -> list[Reader]:
    """Returns the readers behind a cut, after `seconds` or once all that take cuts have it."""
    end = time.monotonic() + seconds
    while True:
        lock.check()
        there = readers(store.records, generation.generation)
        behind = [reader for reader in there if not _has_taken(reader, cut)]
        late = sum(reader.follows_cuts for reader in behind)
        if not late or time.monotonic() >= end:
            return behind
        report(f"waiting for {late} of {len(there)} servers to take step {cut.step}")
        time.sleep(_LOOK_SECONDS)


def _has_taken(reader: Reader, cut: CutRecord) -> bool:
    """Returns whether a reader answers by a cut, or by a later one."""
    if reader.cut == cut.version and reader.identity:
        return reader.identity == cut.identity
    return reader.cut >= cut.version
