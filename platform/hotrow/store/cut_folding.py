"""Folding: merges the rows of cuts into those of their generation (docs/design/0008-cuts.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.store.cut_blocks import Block
from hotrow.store.cuts import BLOCKS_AT_ONCE, CutRecord, cut_name, read_blocks
from hotrow.store.row_store import Keys, Place, Records, Rows, RowStore, Versions
from hotrow.store.spec import Generation


class EarlierRowsLostError(DataLossError):
    """A shard went back while a later cut was folded: it lacks rows of an earlier one."""


# A failover loses rows once; repeated losses have another cause.
_MOST_FOLDINGS = 6


@dataclass(frozen=True)
class _NewestRows:
    """The newest rows of several cuts in some shards.

    Attributes:
        table: number of the table.
        shards: int64 [N], shard of each row.
        keys: int64 [N], distinct.
        rows: uint8 [N, B].
        versions: uint64 [N], with the mark of a tombstone.
    """

    table: int
    shards: np.ndarray
    keys: Keys
    rows: Rows
    versions: Versions

    def of_shards(self, wanted: set[int]) -> _NewestRows:
        """Returns those of some of the shards."""
        own = np.isin(self.shards, list(wanted))
        return _NewestRows(
            self.table, self.shards[own], self.keys[own], self.rows[own], self.versions[own]
        )


def fold(
    store: RowStore,
    generation: Generation,
    cuts: Sequence[CutRecord],
    report: Callable[[int, int], None] = lambda done, of: None,
) -> list[CutRecord]:
    """Writes the rows of cuts over those of their generation; idempotent.

    Of a key that several of the cuts change, only the newest row is written.

    No server may still need the earlier rows. In each shard, the function puts the rows, sets the
    watermark, then puts the same rows again. A failover between the first two steps loses rows and
    no watermark. Only the second put, which finds all rows behind the watermark, proves that the
    watermark is true. A shard that goes back to before the first cut meanwhile keeps its lower
    watermark.

    Args:
        store: the store.
        generation: the generation that the cuts change.
        cuts: cuts that follow each other, the oldest first, at least one; those before them are
            folded already.
        report: called with (done, of), in blocks put; an exception that it raises ends the folding.

    Returns:
        The cuts with their present records.

    Raises:
        EarlierRowsLostError: a shard has lost rows of an earlier cut: fold that one again.
        NotFoundError: the generation has lost rows.
        DataLossError: a cut has lost blocks, or the store keeps losing written rows.
        FailedPreconditionError: another export changed or deleted a cut.
    """
    cuts = list(cuts)
    first, last = cuts[0], cuts[-1]
    # Cuts recorded as folded were proven: only shards whose watermark went back are checked.
    is_proven = all(cut.folded for cut in cuts)
    unproven = set() if is_proven else set(range(generation.shards))
    for _ in range(_MOST_FOLDINGS):
        marks = store.watermarks(generation)
        lost = int((marks < np.uint64(first.previous)).sum())
        if lost:
            raise EarlierRowsLostError(
                f"{store.url}: {lost} of {generation.shards} shards of generation "
                f"{generation.generation} went back in time while step {last.step} was folded; "
                "export again"
            )
        behind = set(np.flatnonzero(marks < np.uint64(last.version)).tolist())
        unproven |= behind
        if not unproven:
            break
        if behind:
            # Servers must not trust the watermarks before they are proven again.
            cuts = [
                _mark_folded(store.records, generation, cut, False) if cut.folded else cut
                for cut in cuts
            ]
        unproven = _put_shards(store, generation, cuts, unproven, behind, report)
    else:
        raise DataLossError(
            f"store {store.url} keeps losing what was folded into generation "
            f"{generation.generation}; is it failing over? Export again when it is at rest"
        )
    return [_mark_folded(store.records, generation, cut) for cut in cuts]


def _put_shards(
    store: RowStore,
    generation: Generation,
    cuts: Sequence[CutRecord],
    unproven: set[int],
    behind: set[int],
    report: Callable[[int, int], None],
) -> set[int]:
    """Puts the rows of cuts in shards; returns the shards that may have lacked some rows.

    Args:
        store: the store.
        generation: the generation.
        cuts: the cuts, the oldest first.
        unproven: the shards.
        behind: those of them whose watermark is not that of the last cut.
        report: see `fold`.
    """
    places = dict.fromkeys(unproven, 0)
    for cut in cuts:
        for shard, _ in cut.places:
            if shard in unproven:
                places[shard] += 1
    lacked: set[int] = set()
    done, of = 0, sum(places.values())
    for shards in _groups(places):
        report(done, of)
        newest = list(_newest_rows(store, generation, cuts, shards))
        if late := shards & behind:
            for some in newest:
                _put(store, generation, some.of_shards(late))
            store.set_watermarks(generation, cuts[-1].version, sorted(late), cuts[0].previous)
        if sum(_put(store, generation, some) for some in newest):
            lacked |= shards
        done += sum(places[shard] for shard in shards)
    return lacked


def _groups(places: dict[int, int]) -> Iterator[set[int]]:
    """Yields shards whose blocks are read at once, from their numbers of blocks."""
    group: set[int] = set()
    blocks = 0
    for shard in sorted(places):
        if group and blocks + places[shard] > BLOCKS_AT_ONCE:
            yield group
            group, blocks = set(), 0
        group.add(shard)
        blocks += places[shard]
    if group:
        yield group


def _newest_rows(
    store: RowStore, generation: Generation, cuts: Sequence[CutRecord], shards: set[int]
) -> Iterator[_NewestRows]:
    """Yields the newest rows of cuts in some shards, each table once."""
    of_table: dict[int, list[Block]] = {}
    for cut in reversed(cuts):
        places: list[Place] = [place for place in cut.places if place[0] in shards]
        for block in read_blocks(store, generation, cut, places) if places else ():
            of_table.setdefault(block.table, []).append(block)
    for table, blocks in sorted(of_table.items()):
        keys = np.concatenate([block.keys for block in blocks])
        _, first = np.unique(keys, return_index=True)  # of the newest cut
        yield _NewestRows(
            table,
            np.repeat([block.shard for block in blocks], [len(b.keys) for b in blocks])[first],
            keys[first],
            np.concatenate([block.rows for block in blocks])[first],
            np.concatenate([block.versions for block in blocks])[first],
        )


def _put(store: RowStore, generation: Generation, rows: _NewestRows) -> int:
    """Puts rows; returns the number of those that were missing."""
    return store.put(generation, rows.table, rows.keys, rows.rows, rows.versions)


def _mark_folded(
    records: Records, generation: Generation, cut: CutRecord, is_folded: bool = True
) -> CutRecord:
    """Records whether a cut's rows are merged into its generation; returns the cut's record.

    Raises:
        FailedPreconditionError: another export changed or deleted it.
    """
    name = cut_name(generation, cut.version)
    folded = cut.model_copy(update={"folded": is_folded})
    text = records.get(name)
    if text is None or not records.swap(name, text, folded.model_dump_json()):
        raise FailedPreconditionError(f"{name} was changed by another export; try again")
    return folded
