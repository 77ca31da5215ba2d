"""Goes back to the state before newer cuts: publishes their former rows as a new cut.

Row versions only grow, so servers take it like any cut (docs/design/0008-cuts.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hotrow.errors import DataLossError, FailedPreconditionError, NotFoundError
from hotrow.store.cut_blocks import TOMBSTONE
from hotrow.store.cut_writing import write_cut
from hotrow.store.cuts import (
    CutRecord,
    TableChanges,
    cuts_of,
    dense_of,
    discard_unfinished,
    read_blocks,
)
from hotrow.store.incremental_export import Outcome, finish_cut
from hotrow.store.leases import Lease
from hotrow.store.lost_cuts import check_nothing_is_lost
from hotrow.store.published import PublishedLog
from hotrow.store.row_store import Keys, Rows, RowStore
from hotrow.store.spec import Generation
from hotrow.store.taken_cuts import fold_taken
from hotrow.store.undo import (
    Shown,
    UndoRecord,
    as_exported,
    dense_before,
    read_undo,
    undos_of,
)
from hotrow.store.withdrawn_cuts import withdrawn_from

_Marks = np.ndarray


@dataclass(frozen=True)
class Reachable:
    """A state of a generation that a rollback can bring back.

    Attributes:
        shown: the state.
        undo: what the cut after it replaced; None: later cuts are not folded.
        bytes: bytes kept in the store for going back to it from the state after it.
    """

    shown: Shown
    undo: UndoRecord | None
    bytes: int


def reachable(store: RowStore, generation: Generation) -> list[Reachable]:
    """Returns the states before the newest cut that can be brought back, the newest first."""
    cuts = cuts_of(store.records, generation)
    undos = {undo.version: undo for undo in undos_of(store.records, generation) if undo.complete}
    if not cuts:
        return []
    found: list[Reachable] = []
    folded = [cut for cut in cuts if cut.folded]
    withdrawn = withdrawn_from(store.records, generation)
    if withdrawn is not None and withdrawn.version > cuts[-1].version:
        return []  # rows of the withdrawn cut may be among the stored ones
    if not cuts[-1].folded:
        base, staged = _folded_state(generation, folded), cuts[len(folded) :]
        if base is None or staged[0].previous not in (base.version, 0):
            return []
        for cut, following in reversed(list(itertools.pairwise(staged))):
            if following.previous != cut.version:
                return found
            found.append(Reachable(Shown.of(cut), None, 0))
        found.append(Reachable(base, None, 0))
    at = folded[-1].version if folded else 0
    while (undo := undos.get(at)) is not None:
        found.append(Reachable(undo.before, undo, undo.bytes))
        at = undo.before.version
    return found


def roll_back_to_cut(
    store: RowStore,
    generation: Generation,
    lock: Lease,
    to: int,
    *,
    published: PublishedLog,
    exported_dense: Callable[[], bytes],
    wait_seconds: float,
    report: Callable[[str], None] = lambda line: None,
    committed: Callable[[CutRecord], None] = lambda cut: None,
) -> Outcome:
    """Publishes the state `to` of a generation as a new cut.

    The store keeps each state that it could go back to before, until the next export.

    Args:
        store: the store.
        generation: with its current record.
        lock: the exporter's lease of the model.
        to: version of a cut, or that of the rows as exported.
        published: what was published of the generation.
        exported_dense: returns the dense weights as exported, in the form of a cut.
        wait_seconds: how long to wait until all servers have taken it.
        report: called with lines of progress.
        committed: called with the new cut once servers can read it.

    Raises:
        NotFoundError: what later cuts replaced is not kept.
        FailedPreconditionError: `to` is shown already, the store has lost what servers may show,
            or the lease was lost.
        DataLossError: the store has lost rows.
        UnavailableError, ResourceExhaustedError: the store does not answer, or is full.
    """
    # Before anything changes:
    check_nothing_is_lost(store, generation, published)
    _path_to(store, generation, to)
    store.check_safe_for_rows()
    discard_unfinished(store, generation)
    # Folding keeps what it replaces, and must drop nothing that the way back needs.
    kept = len(undos_of(store.records, generation))
    kept += sum(not cut.folded for cut in cuts_of(store.records, generation))
    fold_taken(store, generation, lock, report, undo_cuts=kept)
    cuts = cuts_of(store.records, generation)
    path = _path_to(store, generation, to)
    target = path[-1].shown
    dense = _dense_of(store, generation, path, exported_dense)
    changes = _former_rows(store, generation, path)
    cut = write_cut(
        store,
        generation,
        lock,
        changes=changes,
        dense=dense,
        step=target.step,
        clocks=target.clocks,
        lineage=target.lineage,
        after=cuts[-1] if cuts else None,
        norms=lambda: target.norms,
        forced=target.forced,
    )
    committed(cut)
    return finish_cut(store, generation, lock, cut, wait_seconds, report, undo_cuts=kept + 1)


def _path_to(store: RowStore, generation: Generation, to: int) -> list[Reachable]:
    """Returns the states from the newest to the wanted one."""
    cuts = cuts_of(store.records, generation)
    shown = cuts[-1].version if cuts else generation.row_version
    if to == shown:
        raise FailedPreconditionError(f"{to:016x} is what servers show already")
    states = reachable(store, generation)
    versions = [state.shown.version for state in states]
    if to not in versions:
        legal = ", ".join(f"{version:016x}" for version in versions) or "none"
        raise NotFoundError(
            f"{to:016x} is no state of generation {generation.generation} that is kept; there are: "
            f"{legal}. export.undo_cuts of an export keeps more"
        )
    return states[: versions.index(to) + 1]


def _dense_of(
    store: RowStore,
    generation: Generation,
    path: list[Reachable],
    exported_dense: Callable[[], bytes],
) -> bytes:
    target = path[-1]
    if target.undo is not None and target.undo.dense_places:
        return dense_before(store, generation, target.undo)
    if target.shown.version == generation.row_version:
        return exported_dense()
    if target.undo is not None:
        return b""  # the cut had no dense weights
    (cut,) = (c for c in cuts_of(store.records, generation) if c.version == target.shown.version)
    return dense_of(store, generation, cut)


def _former_rows(
    store: RowStore, generation: Generation, path: list[Reachable]
) -> Iterator[tuple[int, TableChanges]]:
    """Yields, for each table, the rows of all keys that changed since the last state of a path."""
    pieces: dict[int, list[tuple[Keys, Rows, _Marks]]] = {}
    staged = [state.shown for state in path if state.undo is None]
    parts = [_rows_before(store, generation, staged[-1].version)] if staged else []
    parts += [_undone_rows(store, generation, state.undo) for state in path if state.undo]
    for found in parts:  # later pieces are of earlier states, and win
        for table, keys, rows, removed in found:
            pieces.setdefault(table, []).append((keys, rows, removed))
    for table in sorted(pieces):
        keys, rows, removed = (
            np.concatenate([piece[i] for piece in reversed(pieces[table])]) for i in range(3)
        )
        distinct, first = np.unique(keys, return_index=True)
        gone = removed[first].astype(bool)
        yield (
            table,
            TableChanges(
                np.ascontiguousarray(distinct[~gone]),
                np.ascontiguousarray(rows[first][~gone]),
                np.ascontiguousarray(distinct[gone]),
            ),
        )


def _undone_rows(
    store: RowStore, generation: Generation, undo: UndoRecord
) -> Iterator[tuple[int, Keys, Rows, _Marks]]:
    for block in read_undo(store, generation, undo):
        yield block.table, block.keys, block.rows, (block.versions & TOMBSTONE) != 0


def _rows_before(
    store: RowStore, generation: Generation, version: int
) -> Iterator[tuple[int, Keys, Rows, _Marks]]:
    """Yields the rows in a state that later cuts have changed, which are not folded.

    Args:
        store: the store.
        generation: the generation.
        version: of the state: a cut that is not folded, or that of the stored rows.
    """
    cuts = [cut for cut in cuts_of(store.records, generation) if not cut.folded]
    first = cuts[0].version
    changed: dict[int, list[Keys]] = {}
    for cut in cuts:
        if cut.version <= version:
            continue
        for block in read_blocks(store, generation, cut, cut.places):
            rows, versions, states = store.read(generation, block.table, block.keys)
            if (versions & ~TOMBSTONE >= np.uint64(first)).any():
                raise DataLossError(
                    f"{store.url}: a cut is folded in part; run the next export, or make a full one"
                )
            changed.setdefault(block.table, []).append(block.keys)
            yield block.table, block.keys, rows, states == 0
    keys = {table: np.concatenate(some) for table, some in changed.items()}
    for cut in cuts:
        if cut.version > version:
            break
        for block in read_blocks(store, generation, cut, cut.places):
            own = np.isin(block.keys, keys.get(block.table, np.empty(0, np.int64)))
            removed = (block.versions[own] & TOMBSTONE) != 0
            yield block.table, block.keys[own], block.rows[own], removed


def _folded_state(generation: Generation, folded: list[CutRecord]) -> Shown | None:
    """Returns the state of a generation's stored rows."""
    if not folded:
        return as_exported(generation)
    return Shown.of(folded[-1])
