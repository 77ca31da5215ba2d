"""Exports changes of training: commits a cut, waits until servers take it, then folds it.

Docs/design/0008-cuts.md. An exporter that is killed at any point does not change what servers read;
the next export continues from the remains.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hotrow.errors import (
    DataLossError,
    FailedPreconditionError,
    HotrowError,
    ResourceExhaustedError,
)
from hotrow.hold_bounds import HoldBounds
from hotrow.lineage import Lineage
from hotrow.norms import GateError, Norm
from hotrow.store.cut_writing import write_cut
from hotrow.store.cuts import (
    CutRecord,
    TableChanges,
    check_blocks,
    cuts_of,
    discard_unfinished,
    forget_cuts,
)
from hotrow.store.holding import Hold, holds
from hotrow.store.leases import Lease
from hotrow.store.lost_cuts import LostCut, clocks_before, find_lost, withdraw_rowless
from hotrow.store.published import PublishedLog
from hotrow.store.readers import Reader, readers
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation, Origin, State
from hotrow.store.taken_cuts import fold_taken
from hotrow.store.withdrawn_cuts import note_withdrawn, withdrawn_from

_LOOK_SECONDS = 0.1
_FULL = "make a full export"


@dataclass(frozen=True)
class Changes:
    """A state of training, and the changes up to it.

    Attributes:
        step: training step.
        lineage: lineage of the training.
        clocks: clocks of the tables, in the order of the generation.
        dense: the dense weights as opaque bytes, or a cut that has the same ones.
        dense_as_exported: whether they are those of the full export.
        of_tables: called with clocks of the tables; returns (number of a table, its changes since).
        norms: called after all of these; returns norms, or raises GateError.
        forced: whether servers take the changes even if a value is not finite.
    """

    step: int
    lineage: Lineage
    clocks: tuple[int, ...]
    dense: bytes | CutRecord
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
        holds: readers that hold up folding still, and for how long.
        overruled: readers that held it up beyond the bounds, and must begin again.
    """

    cut: CutRecord | None
    committed: bool
    waiting_for: tuple[Reader, ...] = ()
    held_by: tuple[Reader, ...] = ()
    holds: tuple[Hold, ...] = ()
    overruled: tuple[Hold, ...] = ()


def export_changes(
    store: RowStore,
    generation: Generation,
    lock: Lease,
    changes: Changes,
    *,
    wait_seconds: float,
    undo_cuts: int = 0,
    bounds: HoldBounds = HoldBounds(),  # noqa: B008 (frozen)
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
        bounds: how long, and with how many bytes, a reader may hold up folding.
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
    forget_broken(store, generation, lock, report)
    overruled = fold_taken(store, generation, lock, report, undo_cuts=undo_cuts, bounds=bounds)
    cuts = cuts_of(store.records, generation)
    since = _check_goes_on(store, generation, cuts, changes, lost)
    after = cuts[-1] if cuts and base is None else None
    since = clocks_before(since, [cut.clocks for cut in lost if cut.clocks])
    if base is not None:
        since = base.clocks
    if lost:
        step = lost[-1].step
        report(f"the store went back in time and has lost step {step}: it is exported again")
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
    outcome = finish_cut(
        store,
        generation,
        lock,
        cut,
        wait_seconds,
        report,
        undo_cuts=undo_cuts,
        bounds=bounds,
        is_new=is_new,
    )
    return dataclasses.replace(outcome, overruled=(*overruled, *outcome.overruled))


def finish_cut(
    store: RowStore,
    generation: Generation,
    lock: Lease,
    cut: CutRecord,
    wait_seconds: float,
    report: Callable[[str], None],
    *,
    undo_cuts: int,
    bounds: HoldBounds = HoldBounds(),  # noqa: B008 (frozen)
    is_new: bool = True,
) -> Outcome:
    """Waits until servers take a committed cut, then folds it; see `export_changes`."""
    behind = wait_until_taken(store, generation, cut, wait_seconds, report, lock)
    overruled = fold_taken(store, generation, lock, report, undo_cuts=undo_cuts, bounds=bounds)
    holding = holds(store.records, generation, cuts_of(store.records, generation))
    still = {hold.reader.holder for hold in holding}
    return Outcome(
        cut,
        is_new,
        waiting_for=tuple(reader for reader in behind if reader.follows_cuts),
        held_by=tuple(r for r in behind if not r.follows_cuts and r.holder in still),
        holds=tuple(holding),
        overruled=tuple(overruled),
    )


def _check_goes_on(
    store: RowStore,
    generation: Generation,
    cuts: Sequence[CutRecord],
    changes: Changes,
    lost: Sequence[LostCut],
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
    what = " (in a cut that the store has lost as it went back in time)"
    shown += [(cut.lineage, cut.step, what) for cut in lost]
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


def forget_broken(
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
            check_blocks(store, generation, cut)
        except DataLossError as err:
            report(f"step {cut.step} is exported again: {err}")
            lock.check()
            note_withdrawn(store.records, generation, cuts[-1])
            forget_cuts(store, generation, cuts[i:])
            return


def _is_new(generation: Generation, cuts: Sequence[CutRecord], changes: Changes) -> bool:
    """Returns whether servers would answer differently with the changes."""
    origin = generation.origin
    assert origin is not None  # it was checked
    if not cuts:
        known = (generation.step, origin.clocks)
        return known != (changes.step, changes.clocks) or not changes.dense_as_exported
    last = cuts[-1]
    if isinstance(changes.dense, CutRecord):
        dense = changes.dense.dense_sha256
    else:
        dense = hashlib.sha256(changes.dense).hexdigest()
    return (last.step, last.clocks, last.dense_sha256) != (changes.step, changes.clocks, dense)


def wait_until_taken(
    store: RowStore,
    generation: Generation,
    cut: CutRecord,
    seconds: float,
    report: Callable[[str], None],
    lock: Lease | None = None,
) -> list[Reader]:
    """Returns the readers behind a cut, after `seconds` or once all that take cuts have it.

    Args:
        store: the store.
        generation: that the cut changes.
        cut: a committed cut.
        seconds: how long to wait.
        report: called with lines of progress.
        lock: of this exporter, which must not be lost meanwhile; None: another one committed it.

    Raises:
        FailedPreconditionError: the lock was lost.
        UnavailableError: the store does not answer.
    """
    end = time.monotonic() + seconds
    while True:
        if lock is not None:
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
