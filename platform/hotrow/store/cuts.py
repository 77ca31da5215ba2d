"""Cuts of a generation: staged beside its rows, committed at once, folded into them later.

Docs/design/0008-cuts.md. N rows, B bytes of a stored row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.norms import Norm
from hotrow.store.cut_blocks import Block, dense_blocks, read_block, row_blocks
from hotrow.store.generations import Generations, new_identity
from hotrow.store.leases import Lease
from hotrow.store.readers import readers
from hotrow.store.record_format import StoredRecord, damaged, read_object, read_record
from hotrow.store.row_store import Change, Keys, Place, Records, Rows, RowStore
from hotrow.store.spec import Generation, row_version

_CUT = "cut/"
_STAGING = "staging/"
_WITHDRAWN = "withdrawn/"
BLOCKS_AT_ONCE = 64


@dataclass(frozen=True)
class TableChanges:
    """The changes of a table.

    Attributes:
        keys: int64 [N], distinct, keys of new or changed rows.
        rows: uint8 [N, B].
        removed: int64 [M], keys that no longer have a row; none of `keys`.
    """

    keys: Keys
    rows: Rows
    removed: Keys


class CutRecord(StoredRecord):
    """The control record of a committed cut.

    Attributes:
        generation: the generation that it changes.
        epoch, seq: its number.
        identity: random: a store that went back in time cannot have another cut with it. "": an
            older version of Hotrow wrote it.
        step: training step that it shows.
        clocks: clocks of the tables at that step; the next cut starts after them.
        lineage: id of the last start of training behind it.
        dense_sha256: SHA-256 of its dense weights, in hex.
        rows, removed: numbers of rows, over all tables.
        previous: version of the generation's cut before it; 0: it is the first one. A reader at
            another version needs earlier cuts, too; if they no longer exist, it must read rows
            again.
        places: places of its blocks of rows.
        dense_places: places of its blocks of dense weights, in their order.
        folded: whether all of its rows are merged into the generation's own.
        norms: sizes of tables and dense weights, which the next export is compared with.
        forced: whether servers take it even if a value is not finite.
        bytes: size of its blocks; 0: an older version of Hotrow wrote it.
        committed_ms: when it was committed, by the store's clock; 0: likewise.
    """

    generation: str
    epoch: int
    seq: int
    identity: str = ""
    step: int
    clocks: tuple[int, ...]
    lineage: str = ""
    dense_sha256: str = ""
    rows: int
    removed: int
    previous: int = 0
    places: tuple[Place, ...]
    dense_places: tuple[Place, ...] = ()
    folded: bool = False
    norms: tuple[Norm, ...] = ()
    forced: bool = False
    bytes: int = 0
    committed_ms: int = 0

    @property
    def version(self) -> int:
        """The version of its rows."""
        return row_version(self.epoch, self.seq)

    @property
    def all_places(self) -> tuple[Place, ...]:
        """The places of all of its blocks."""
        return self.places + self.dense_places


class Withdrawn(StoredRecord):
    """The newest withdrawn cut: it or an earlier one lost blocks; servers may show it still.

    Attributes:
        version: version of its rows.
        step: training step that it showed.
        lineage: id of the last start of training behind it.
    """

    version: int
    step: int
    lineage: str


def write_cut(
    store: RowStore,
    generation: Generation,
    lock: Lease,
    *,
    changes: Iterable[tuple[int, TableChanges]],
    dense: bytes,
    step: int,
    clocks: Sequence[int],
    lineage: str = "",
    previous: int | None = None,
    after: CutRecord | None = None,
    above: int = 0,
    norms: Callable[[], tuple[Norm, ...]] = tuple,
    forced: bool = False,
) -> CutRecord:
    """Stages and commits a cut; servers read nothing of it before it is whole.

    Args:
        store: the store.
        generation: a complete generation.
        lock: the exporter's lease of the model.
        changes: (number of the table, changes); a table may occur several times.
        dense: the dense weights as opaque bytes.
        step: the training step.
        clocks: clocks of the tables.
        lineage: id of the last start of that training.
        previous: version of the state from which the changes go on; None: the last cut.
        after: in place of `previous`, the cut from which the changes go on. A store that went back
            has lost it at the commit.
        above: a version that it must exceed, besides those that the store and its readers know.
        norms: called once all changes are staged; an exception that it raises ends the export
            before the commit.
        forced: whether servers take it even if a value is not finite.

    Raises:
        FailedPreconditionError: another exporter took over.
        UnavailableError, ResourceExhaustedError: the store does not answer, or is full.
    """
    generations = Generations(store.records)
    discard_unfinished(store, generation)
    known = max(above, newest_anywhere(store, generation))
    model = generations.next_epoch(generation.model, known)
    version = row_version(model.epoch, model.seq + 1)
    staging = _name(_STAGING, generation, version)
    numbers: dict[int, int] = {}
    places: list[Place] = []
    dense_places: list[Place] = []
    rows = removed = size = 0
    blocks: dict[Place, bytes] = {}
    noted: str | None = None

    def stage(number: int) -> None:
        nonlocal noted, size
        if len(blocks) < number:
            return
        if lock.lost.is_set():
            raise FailedPreconditionError("another export of the model took over")
        # Written before the blocks, so that a later exporter finds the places of unfinished ones.
        note = json.dumps(numbers)
        if not store.records.swap(staging, noted, note):
            raise FailedPreconditionError("another export of the model took over")
        noted = note
        store.stage(generation, version, blocks)
        if store.records.get(staging) != note:
            # This exporter paused before it staged them; another one has deleted its record since.
            store.unstage(generation, version, list(blocks))
            raise FailedPreconditionError("another export of the model took over")
        size += sum(map(len, blocks.values()))
        blocks.clear()

    for table, change in changes:
        rows, removed = rows + len(change.keys), removed + len(change.removed)
        for place, block in row_blocks(
            generation, version, table, change.keys, change.rows, change.removed, numbers
        ):
            places.append(place)
            blocks[place] = block
            stage(BLOCKS_AT_ONCE)
    for place, block in dense_blocks(generation, version, dense, numbers):
        dense_places.append(place)
        blocks[place] = block
        stage(BLOCKS_AT_ONCE)
    stage(1)
    shown_norms = norms()
    if after is not None:
        previous = after.version
    elif previous is None:
        before = cuts_of(store.records, generation)
        previous = before[-1].version if before else 0
    cut = CutRecord(
        generation=generation.generation,
        epoch=model.epoch,
        seq=model.seq + 1,
        identity=new_identity(),
        step=step,
        clocks=tuple(clocks),
        lineage=lineage,
        dense_sha256=hashlib.sha256(dense).hexdigest(),
        rows=rows,
        removed=removed,
        previous=previous,
        places=tuple(places),
        dense_places=tuple(dense_places),
        norms=shown_norms,
        forced=forced,
        bytes=size,
        committed_ms=store.records.now_ms(),
    )
    # Read back, because a failover may have lost a block after its acknowledgement.
    for _ in read_blocks(store, generation, cut):
        pass
    store.await_replicas(generation)
    records: list[Change] = [(_name(_CUT, generation, version), None, cut.model_dump_json())]
    if noted is not None:
        records.append((staging, noted, None))
    if after is not None:
        records.append(_still_there(store, generation, after))
    if not generations.commit(generation.model, model, records):
        raise FailedPreconditionError(
            f"model {generation.model}: another export has begun since; this cut is not committed"
        )
    store.await_replicas(generation)
    return cut


def _still_there(store: RowStore, generation: Generation, cut: CutRecord) -> Change:
    """Returns a change that leaves a cut's record as it is, and fails without it."""
    name = _name(_CUT, generation, cut.version)
    text = store.records.get(name)
    if text is None or read_record(CutRecord, text, name) != cut:
        raise FailedPreconditionError(
            f"{store.url}: the store went back in time during the export and has lost or changed "
            f"cut {cut.version:016x}; export again"
        )
    return name, text, text


def newest_anywhere(store: RowStore, generation: Generation) -> int:
    """Returns the greatest version of a cut that shards, or servers with their leases, know.

    The records of a store that went back in time may know an earlier one only.
    """
    served = [r.cut for r in readers(store.records, generation.generation) if r.identity]
    return max(int(store.watermarks(generation).max()), *served, 0)


def cuts_of(records: Records, generation: Generation) -> list[CutRecord]:
    """Returns the committed cuts of a generation, the oldest first."""
    found = []
    for name in records.names(f"{_CUT}{generation.generation}/"):
        text = records.get(name)
        if text is not None:  # it was deleted meanwhile
            found.append(read_record(CutRecord, text, name))
    return sorted(found, key=lambda cut: cut.version)


def read_blocks(
    store: RowStore,
    generation: Generation,
    cut: CutRecord,
    places: Sequence[Place] | None = None,
) -> Iterator[Block]:
    """Yields the blocks of a cut in the order of their places.

    Args:
        store: the store.
        generation: the generation that the cut changes.
        cut: a cut whose blocks are not deleted.
        places: some of the cut's places; None: all.

    Raises:
        DataLossError: a block is missing or damaged.
    """
    for _, block in _checked_blocks(store, generation, cut, places):
        yield block


def row_block_bytes(store: RowStore, generation: Generation, cut: CutRecord) -> Iterator[bytes]:
    """Yields the blocks of rows of a cut as stored, after a check of each.

    Raises:
        DataLossError: a block is missing or damaged.
    """
    for content, _ in _checked_blocks(store, generation, cut, cut.places):
        yield content


def _checked_blocks(
    store: RowStore, generation: Generation, cut: CutRecord, places: Sequence[Place] | None
) -> Iterator[tuple[bytes, Block]]:
    wanted = list(cut.all_places if places is None else places)
    for first in range(0, len(wanted), BLOCKS_AT_ONCE):
        some = wanted[first : first + BLOCKS_AT_ONCE]
        for place, block in zip(some, store.staged(generation, cut.version, some), strict=True):
            if block is None:
                raise DataLossError(
                    f"{store.url}: block {place[1]} of shard {place[0]} of cut {cut.version:016x} "
                    "is missing"
                )
            yield block, read_block(block, generation, cut.version, place)


def dense_of(store: RowStore, generation: Generation, cut: CutRecord) -> bytes:
    """Returns the dense weights of a cut; b"" if it has none.

    Raises:
        DataLossError: a block is missing or damaged.
    """
    blocks = read_blocks(store, generation, cut, cut.dense_places)
    return b"".join(block.rows.tobytes() for block in blocks)


def mark_folded(
    records: Records, generation: Generation, cut: CutRecord, is_folded: bool = True
) -> CutRecord:
    """Records whether a cut's rows are merged into its generation; returns the cut's record.

    Raises:
        FailedPreconditionError: another export changed or deleted it.
    """
    name = _name(_CUT, generation, cut.version)
    folded = cut.model_copy(update={"folded": is_folded})
    text = records.get(name)
    if text is None or not records.swap(name, text, folded.model_dump_json()):
        raise FailedPreconditionError(f"{name} was changed by another export; try again")
    return folded


def forget_cut(store: RowStore, generation: Generation, cut: CutRecord) -> None:
    """Deletes the record of a cut and its blocks; no server may need them any more.

    If the process is killed meanwhile, blocks remain as after an unfinished export, but never a cut
    without blocks.
    """
    numbers: dict[int, int] = {}
    for shard, number in cut.all_places:
        numbers[shard] = max(numbers.get(shard, 0), number + 1)
    name = _name(_CUT, generation, cut.version)
    staging = _name(_STAGING, generation, cut.version)
    text = store.records.get(name)
    if store.records.swap_all([(name, text, None), (staging, None, json.dumps(numbers))]):
        _discard(store, generation, staging)


def note_withdrawn(records: Records, generation: Generation, cut: CutRecord) -> None:
    """Records that a cut is withdrawn, permanently: later cuts continue from it, too."""
    name = _WITHDRAWN + generation.generation
    note = Withdrawn(version=cut.version, step=cut.step, lineage=cut.lineage)
    records.swap(name, records.get(name), note.model_dump_json())


def withdrawn_from(records: Records, generation: Generation) -> Withdrawn | None:
    """Returns the newest cut withdrawn from a generation, or None."""
    name = _WITHDRAWN + generation.generation
    text = records.get(name)
    return None if text is None else read_record(Withdrawn, text, name)


def forget_withdrawn(records: Records, generation: Generation) -> None:
    """Removes that record, for a generation that is being deleted."""
    name = _WITHDRAWN + generation.generation
    records.swap(name, records.get(name), None)


def discard_unfinished(store: RowStore, generation: Generation) -> None:
    """Deletes what killed exports have staged. The caller holds the exporter's lease."""
    for name in store.records.names(f"{_STAGING}{generation.generation}/"):
        _discard(store, generation, name)


def _discard(store: RowStore, generation: Generation, staging: str) -> None:
    """Deletes the record of an uncommitted cut, and the blocks that it names."""
    text = store.records.get(staging)
    numbers = read_object(text or "{}", staging)
    try:
        places = [(int(shard), n) for shard, count in numbers.items() for n in range(count)]
    except (ValueError, TypeError) as err:
        raise damaged(staging, str(err)) from err
    store.unstage(generation, int(staging.rpartition("/")[2], 16), places)
    store.records.swap(staging, text, None)


def _name(kind: str, generation: Generation, version: int) -> str:
    return f"{kind}{generation.generation}/{version:016x}"
