"""What a cut replaces, kept so that its rows can be brought back (docs/design/0008-cuts.md).

Folding overwrites rows. Before it, the rows that the cut changes and the dense weights before it
are staged once more, under a version that no cut has; a record names them. N rows, B bytes a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pydantic

from hotrow.errors import DataLossError, FailedPreconditionError, UnavailableError
from hotrow.norms import Norm
from hotrow.store.cut_blocks import TOMBSTONE, Block, former_block, read_block
from hotrow.store.cuts import BLOCKS_AT_ONCE, CutRecord, read_blocks
from hotrow.store.record_format import StoredRecord, read_record
from hotrow.store.row_store import Place, Records, RowStore
from hotrow.store.spec import Generation

_UNDO = "undo/"
# Versions of cuts have 63 bits.
_STAGED_APART = 1 << 63
# Blocks of dense weights have numbers above those of rows.
_DENSE_NUMBERS = 1 << 30
_FAILED = 2  # the state of a row that could not be read


class Shown(pydantic.BaseModel):
    """A state of a generation that servers showed: a cut, or the rows as exported.

    Attributes:
        version: version of its rows.
        step, clocks, lineage: of the training.
        dense_sha256: SHA-256 of its dense weights, in hex; "": as exported.
        dense_version: see `CutRecord`.
        norms: sizes of tables and dense weights.
        forced: whether servers take it even if a value is not finite.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")

    version: int
    step: int
    clocks: tuple[int, ...]
    lineage: str
    dense_sha256: str = ""
    dense_version: int = 0
    norms: tuple[Norm, ...] = ()
    forced: bool = False

    @classmethod
    def of(cls, cut: CutRecord) -> Shown:
        """Returns the state that a cut shows."""
        return cls(
            version=cut.version,
            step=cut.step,
            clocks=cut.clocks,
            lineage=cut.lineage,
            dense_sha256=cut.dense_sha256,
            dense_version=cut.dense_version,
            norms=cut.norms,
            forced=cut.forced,
        )


class UndoRecord(StoredRecord):
    """The control record of what a cut replaced.

    Attributes:
        generation: the generation that the cut changed.
        version: version of the cut.
        before: the state that servers showed before.
        places: places of the blocks of rows; those of the cut's own.
        dense_places: places of the dense weights of `before`; empty if they are as exported.
        bytes: size of all blocks.
        rows: number of rows.
        complete: whether all blocks are written.
    """

    generation: str
    version: int
    before: Shown
    places: tuple[Place, ...]
    dense_places: tuple[Place, ...]
    bytes: int = 0
    rows: int = 0
    complete: bool = False


def as_exported(generation: Generation) -> Shown | None:
    """Returns the state of a generation without cuts; None if its training is not known."""
    origin = generation.origin
    if origin is None:
        return None
    return Shown(
        version=generation.row_version,
        step=generation.step,
        clocks=origin.clocks,
        lineage=origin.lineage,
    )


def keep_replaced(
    store: RowStore, generation: Generation, cut: CutRecord, before: CutRecord | None
) -> bool:
    """Keeps what a cut is about to replace; idempotent. Call it before the cut is folded.

    Args:
        store: the store.
        generation: the generation that the cut changes.
        cut: a cut that is not folded; earlier ones are.
        before: the cut before it, whose dense weights are still staged; None: there was none.

    Returns:
        Whether the rows of before are kept. They cannot be if some were folded already, or if the
        cut before is no longer known.

    Raises:
        DataLossError: a block is missing or damaged.
        ResourceExhaustedError, UnavailableError: the store is full, or does not answer.
    """
    found = undo_of(store.records, generation, cut.version)
    if found is not None and found.complete:
        return True
    if found is not None:
        forget_undo(store, generation, found)
    shown = as_exported(generation) if before is None else Shown.of(before)
    if shown is None or cut.previous != (0 if before is None else before.version):
        return False
    staged = before.dense_places if before is not None else ()
    undo = UndoRecord(
        generation=generation.generation,
        version=cut.version,
        before=shown,
        places=cut.places,
        dense_places=tuple((shard, number | _DENSE_NUMBERS) for shard, number in staged),
    )
    name = _name(generation, cut.version)
    # Written first, so that what a killed exporter has staged is found again.
    if not store.records.swap(name, None, undo.model_dump_json()):
        raise FailedPreconditionError("another export of the model took over")
    size = _stage_rows(store, generation, cut, shown.version)
    if size is None:
        forget_undo(store, generation, undo)
        return False
    if before is not None:
        size += _stage_dense(store, generation, cut, before)
    done = undo.model_copy(update={"bytes": size, "rows": cut.rows + cut.removed, "complete": True})
    if not store.records.swap(name, undo.model_dump_json(), done.model_dump_json()):
        raise FailedPreconditionError("another export of the model took over")
    return True


def undo_of(records: Records, generation: Generation, version: int) -> UndoRecord | None:
    """Returns what a cut replaced, or None if it was not kept."""
    name = _name(generation, version)
    text = records.get(name)
    return None if text is None else read_record(UndoRecord, text, name)


def undos_of(records: Records, generation: Generation) -> list[UndoRecord]:
    """Returns what is kept of a generation, the oldest first."""
    found = []
    for name in records.names(f"{_UNDO}{generation.generation}/"):
        text = records.get(name)
        if text is not None:  # it was deleted meanwhile
            found.append(read_record(UndoRecord, text, name))
    return sorted(found, key=lambda undo: undo.version)


def read_undo(store: RowStore, generation: Generation, undo: UndoRecord) -> Iterator[Block]:
    """Yields the rows that a cut replaced; a tombstone for a key that had none.

    Raises:
        DataLossError: a block is missing or damaged.
    """
    for place, block in _staged(store, generation, undo, undo.places):
        yield read_block(block, generation, undo.version, place)


def dense_before(store: RowStore, generation: Generation, undo: UndoRecord) -> bytes:
    """Returns the dense weights before a cut; b"" if there are none, or they are as exported.

    Raises:
        DataLossError: a block is missing or damaged.
    """
    blocks = _staged(store, generation, undo, undo.dense_places)
    version = undo.before.dense_version or undo.before.version
    return b"".join(read_block(b, generation, version, place).rows.tobytes() for place, b in blocks)


def forget_undo(store: RowStore, generation: Generation, undo: UndoRecord) -> None:
    """Deletes what is kept of a cut; idempotent. Never leaves a complete record without blocks."""
    name = _name(generation, undo.version)
    unfinished = undo.model_copy(update={"complete": False}).model_dump_json()
    store.records.swap(name, store.records.get(name), unfinished)
    places = [*undo.places, *undo.dense_places]
    store.unstage(generation, undo.version | _STAGED_APART, places)
    store.records.swap(name, unfinished, None)


def keep_newest_undos(store: RowStore, generation: Generation, count: int) -> None:
    """Deletes what is kept beyond the `count` newest cuts, and what is unfinished."""
    kept = undos_of(store.records, generation)
    for undo in kept[: max(0, len(kept) - count)]:
        forget_undo(store, generation, undo)


def _stage_rows(store: RowStore, generation: Generation, cut: CutRecord, before: int) -> int | None:
    """Stages the stored rows of a cut's keys; returns the bytes, None if some are newer."""
    size = 0
    for first in range(0, len(cut.places), BLOCKS_AT_ONCE):
        some = cut.places[first : first + BLOCKS_AT_ONCE]
        blocks = dict(zip(some, read_blocks(store, generation, cut, some), strict=True))
        former = _former(store, generation, blocks, before)
        if former is None:
            return None
        store.stage(generation, cut.version | _STAGED_APART, former)
        size += sum(map(len, former.values()))
    return size


def _former(
    store: RowStore, generation: Generation, blocks: dict[Place, Block], before: int
) -> dict[Place, bytes] | None:
    former = {}
    for table in sorted({block.table for block in blocks.values()}):
        own = {place: block for place, block in blocks.items() if block.table == table}
        keys = np.concatenate([block.keys for block in own.values()])
        rows, versions, states = store.read(generation, table, keys)
        if (states == _FAILED).any():
            raise UnavailableError(f"{store.url} did not return all rows; try again")
        if (versions & ~TOMBSTONE > np.uint64(before)).any():
            return None
        at = 0
        for place, block in own.items():
            part = slice(at, at + len(block.keys))
            former[place] = former_block(block, rows[part], states[part] == 0)
            at += len(block.keys)
    return former


def _stage_dense(store: RowStore, generation: Generation, cut: CutRecord, before: CutRecord) -> int:
    size = 0
    for first in range(0, len(before.dense_places), BLOCKS_AT_ONCE):
        some = before.dense_places[first : first + BLOCKS_AT_ONCE]
        blocks = {}
        for place, block in zip(
            some, store.staged(generation, before.dense_staged, some), strict=True
        ):
            if block is None:
                raise DataLossError(f"{store.url}: cut {before.dense_staged:016x} has lost a block")
            read_block(block, generation, before.dense_staged, place)
            blocks[place[0], place[1] | _DENSE_NUMBERS] = block
        store.stage(generation, cut.version | _STAGED_APART, blocks)
        size += sum(map(len, blocks.values()))
    return size


def _staged(
    store: RowStore, generation: Generation, undo: UndoRecord, places: Sequence[Place]
) -> Iterator[tuple[Place, bytes]]:
    """Yields blocks with the places that their contents name."""
    for first in range(0, len(places), BLOCKS_AT_ONCE):
        some = places[first : first + BLOCKS_AT_ONCE]
        found = store.staged(generation, undo.version | _STAGED_APART, some)
        for (shard, number), block in zip(some, found, strict=True):
            if block is None:
                raise DataLossError(
                    f"{store.url}: a block of what cut {undo.version:016x} replaced is missing"
                )
            yield (shard, number & ~_DENSE_NUMBERS), block


def _name(generation: Generation, version: int) -> str:
    return f"{_UNDO}{generation.generation}/{version:016x}"
