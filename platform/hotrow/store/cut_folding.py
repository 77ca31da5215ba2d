"""Folding: merges the rows of a cut into those of its generation (docs/design/0008-cuts.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hotrow.errors import DataLossError
from hotrow.store.cut_blocks import Block
from hotrow.store.cuts import BLOCKS_AT_ONCE, CutRecord, mark_folded, read_blocks
from hotrow.store.row_store import Place, RowStore
from hotrow.store.spec import Generation


class EarlierRowsLostError(DataLossError):
    """A shard went back while a later cut was folded: it lacks rows of an earlier one."""


# A failover loses rows once; repeated losses have another cause.
_MOST_FOLDINGS = 6


def fold(
    store: RowStore,
    generation: Generation,
    cut: CutRecord,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> CutRecord:
    """Writes the rows of a cut over those of its generation; idempotent.

    No server may still need the earlier rows. The function puts the rows, sets the watermarks, then
    puts the same rows again. A failover between the first two steps loses rows and no watermark.
    Only the second put, which finds all rows behind the watermarks, proves that the watermarks are
    true. A shard that goes back to before the cut before meanwhile keeps its lower watermark.

    Args:
        store: the store.
        generation: the generation that the cut changes.
        cut: the cut; earlier cuts are folded already.
        report: called with (done, of), in blocks put or put again; an exception that it raises ends
            the folding.

    Raises:
        EarlierRowsLostError: a shard has lost rows of an earlier cut: fold that one again.
        NotFoundError: the generation has lost rows.
        DataLossError: the cut has lost blocks, or the store keeps losing written rows.
        FailedPreconditionError: another export changed or deleted the cut.
    """
    # A cut recorded as folded was proven: only shards whose watermark went back are checked.
    unproven = set() if cut.folded else set(range(generation.shards))
    for _ in range(_MOST_FOLDINGS):
        marks = store.watermarks(generation)
        lost = int((marks < np.uint64(cut.previous)).sum())
        if lost:
            raise EarlierRowsLostError(
                f"{store.url}: {lost} of {generation.shards} shards of generation "
                f"{generation.generation} went back in time while step {cut.step} was folded; "
                "export again"
            )
        behind = np.flatnonzero(marks < np.uint64(cut.version)).tolist()
        unproven |= set(behind)
        if not unproven:
            break
        if behind:
            if cut.folded:
                # Servers must not trust the watermarks before they are proven again.
                cut = mark_folded(store.records, generation, cut, False)
            _put_shards(store, generation, cut, set(behind), report)
            store.set_watermarks(generation, cut.version, behind, cut.previous)
        unproven = _put_shards(store, generation, cut, unproven, report)
    else:
        raise DataLossError(
            f"store {store.url} keeps losing what was folded into generation "
            f"{generation.generation}; is it failing over? Export again when it is at rest"
        )
    return mark_folded(store.records, generation, cut)


def _put_shards(
    store: RowStore,
    generation: Generation,
    cut: CutRecord,
    shards: set[int],
    report: Callable[[int, int], None],
) -> set[int]:
    """Puts the rows of a cut in some shards; returns the shards that may have lacked some rows."""
    places = [place for place in cut.places if place[0] in shards]
    lacked: set[int] = set()
    for first in range(0, len(places), BLOCKS_AT_ONCE):
        report(first, len(places))
        some = places[first : first + BLOCKS_AT_ONCE]
        if _put_blocks(store, generation, cut, some):
            lacked |= {shard for shard, _ in some}
    return lacked


def _put_blocks(
    store: RowStore, generation: Generation, cut: CutRecord, places: Sequence[Place]
) -> int:
    """Puts the rows of some blocks, grouped by table; returns the number of missing rows."""
    of_table: dict[int, list[Block]] = {}
    for block in read_blocks(store, generation, cut, places):
        of_table.setdefault(block.table, []).append(block)
    written = 0
    for table, blocks in of_table.items():
        keys = np.concatenate([block.keys for block in blocks])
        rows = np.concatenate([block.rows for block in blocks])
        versions = np.concatenate([block.versions for block in blocks])
        written += store.put(generation, table, keys, rows, versions)
    return written
