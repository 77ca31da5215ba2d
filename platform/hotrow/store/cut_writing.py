"""Writes cuts: stages blocks beside the rows of a generation, then commits them at once.

Docs/design/0008-cuts.md. N rows, B bytes of a stored row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hotrow.errors import FailedPreconditionError
from hotrow.norms import Norm
from hotrow.store.cut_blocks import dense_blocks, row_blocks
from hotrow.store.cuts import (
    BLOCKS_AT_ONCE,
    CutRecord,
    TableChanges,
    check_blocks,
    cut_name,
    cuts_of,
    discard_unfinished,
    staging_name,
)
from hotrow.store.generations import Generations, ModelRecord, new_identity
from hotrow.store.known_versions import newest_anywhere
from hotrow.store.leases import Lease
from hotrow.store.record_format import read_record
from hotrow.store.row_store import Change, Place, RowStore
from hotrow.store.spec import Generation, row_version

ROWS_AT_ONCE_BYTES = 8 << 20
"""Of the rows of a table that are spread over its shards at once."""
_TAKEN_OVER = "another export of the model took over"


@dataclass
class StagedPart:
    """What one process has staged of a cut.

    Attributes:
        places: places of blocks of rows.
        dense_places: places of blocks of dense weights, in their order.
        rows, removed: numbers of rows.
        bytes: size of the blocks.
        record: name of the record that lists them until the commit.
        note: its text; None: nothing is staged.
    """

    record: str
    places: list[Place] = field(default_factory=list)
    dense_places: list[Place] = field(default_factory=list)
    rows: int = 0
    removed: int = 0
    bytes: int = 0
    note: str | None = None


class CutStaging:
    """Stages the blocks of one cut, or one process's part of them.

    A record lists the places before blocks are written there, so a later exporter finds the blocks
    of one that was killed.

    Args:
        store: the store.
        generation: the generation that the cut changes.
        version: version of the cut, from `begin_cut`.
        check: called before each write; raises if this process may not write any more.
        part: number of this process among those that stage the cut.
        parts: how many they are.
    """

    def __init__(
        self,
        store: RowStore,
        generation: Generation,
        version: int,
        check: Callable[[], None],
        part: int = 0,
        parts: int = 1,
    ) -> None:
        self._store = store
        self._generation = generation
        self._version = version
        self._check = check
        self._parts = parts
        self._numbers = dict.fromkeys(range(generation.shards), part) if part else {}
        self._blocks: dict[Place, bytes] = {}
        self._table = 0
        self._pieces: list[TableChanges] = []  # of that table, which have no blocks yet
        self._piece_bytes = 0
        self.staged = StagedPart(staging_name(generation, version, part))

    def add_rows(self, table: int, changes: TableChanges) -> None:
        """Stages changes of a table; it may be called several times for a table."""
        if table != self._table:
            self._place_rows()
            self._table = table
        self.staged.rows += len(changes.keys)
        self.staged.removed += len(changes.removed)
        self._pieces.append(changes)
        self._piece_bytes += changes.rows.nbytes + changes.removed.nbytes
        if self._piece_bytes >= ROWS_AT_ONCE_BYTES:
            self._place_rows()

    def add_dense(self, content: bytes) -> None:
        """Stages the dense weights as opaque bytes."""
        self._place_rows()
        blocks = dense_blocks(self._generation, self._version, content, self._numbers, self._parts)
        for place, block in blocks:
            self.staged.dense_places.append(place)
            self._put(place, block)

    def finish(self) -> StagedPart:
        """Stages what is left, and returns all.

        Raises:
            FailedPreconditionError: another exporter took over.
            UnavailableError, ResourceExhaustedError: the store does not answer, or is full.
        """
        self._place_rows()
        self._write(1)
        return self.staged

    def _place_rows(self) -> None:
        """Makes blocks of the rows of a table: a few large ones, however they came."""
        if not self._pieces:
            return
        blocks = row_blocks(
            self._generation,
            self._version,
            self._table,
            np.concatenate([piece.keys for piece in self._pieces]),
            np.concatenate([piece.rows for piece in self._pieces]),
            np.concatenate([piece.removed for piece in self._pieces]),
            self._numbers,
            self._parts,
        )
        self._pieces, self._piece_bytes = [], 0
        for place, block in blocks:
            self.staged.places.append(place)
            self._put(place, block)

    def _put(self, place: Place, block: bytes) -> None:
        self._blocks[place] = block
        self._write(BLOCKS_AT_ONCE)

    def _write(self, number: int) -> None:
        if len(self._blocks) < number:
            return
        self._check()
        store, staged = self._store, self.staged
        note = json.dumps(self._numbers)
        if not store.records.swap(staged.record, staged.note, note):
            raise FailedPreconditionError(_TAKEN_OVER)
        staged.note = note
        store.stage(self._generation, self._version, self._blocks)
        if store.records.get(staged.record) != note:
            # This exporter paused before it staged them; another one has deleted its record since.
            store.unstage(self._generation, self._version, list(self._blocks))
            raise FailedPreconditionError(_TAKEN_OVER)
        staged.bytes += sum(map(len, self._blocks.values()))
        self._blocks.clear()


@dataclass(frozen=True)
class CutBegun:
    """A cut that may be staged and committed until another writer begins.

    Attributes:
        writer: the model's record, which the commit compares.
        version: version of its rows.
        identity: random; see `CutRecord`.
    """

    writer: ModelRecord
    version: int
    identity: str


def begin_cut(store: RowStore, generation: Generation, above: int = 0) -> CutBegun:
    """Takes the next version of a generation, and deletes what killed exports have staged.

    Args:
        store: the store.
        generation: a complete generation.
        above: a version that it must exceed, besides those that the store and its readers know.
    """
    discard_unfinished(store, generation)
    known = max(above, newest_anywhere(store, generation))
    writer = Generations(store.records).next_epoch(generation.model, known)
    return CutBegun(writer, row_version(writer.epoch, writer.seq + 1), new_identity())


def commit_cut(
    store: RowStore,
    generation: Generation,
    begun: CutBegun,
    parts: Sequence[StagedPart],
    *,
    step: int,
    clocks: Sequence[int],
    lineage: str = "",
    dense_sha256: str = "",
    same_dense: CutRecord | None = None,
    previous: int | None = None,
    after: CutRecord | None = None,
    norms: tuple[Norm, ...] = (),
    forced: bool = False,
    event_ms: int = 0,
) -> CutRecord:
    """Commits what was staged; servers read nothing of it before.

    Args:
        store: the store.
        generation: the generation.
        begun: from `begin_cut`.
        parts: from `CutStaging.finish` of each process; only the first has dense weights.
        step: the training step.
        clocks: clocks of the tables.
        lineage: id of the last start of that training.
        dense_sha256: SHA-256 of the dense weights, in hex.
        same_dense: a cut that has the same dense weights; None: the first part has them.
        previous: version of the state from which the changes go on; None: the last cut.
        after: in place of `previous`, the cut from which the changes go on. A store that went back
            has lost it at the commit.
        norms: sizes of tables and weights.
        forced: whether servers take it even if a value is not finite.
        event_ms: time of the newest event behind it, Unix milliseconds.

    Raises:
        FailedPreconditionError: another exporter took over; or the store has lost `after`, or the
            cut that has the same dense weights.
        DataLossError: the store has lost a block that was staged.
        UnavailableError, ResourceExhaustedError: the store does not answer, or is full.
    """
    if after is not None:
        previous = after.version
    elif previous is None:
        before = cuts_of(store.records, generation)
        previous = before[-1].version if before else 0
    cut = CutRecord(
        generation=generation.generation,
        epoch=begun.writer.epoch,
        seq=begun.writer.seq + 1,
        identity=begun.identity,
        step=step,
        clocks=tuple(clocks),
        lineage=lineage,
        dense_sha256=dense_sha256,
        rows=sum(part.rows for part in parts),
        removed=sum(part.removed for part in parts),
        previous=previous,
        places=tuple(place for part in parts for place in part.places),
        dense_places=tuple(place for part in parts for place in part.dense_places),
        norms=norms,
        forced=forced,
        bytes=sum(part.bytes for part in parts),
        event_ms=event_ms,
    )
    # Read back, because a failover may have lost a block after its acknowledgement.
    check_blocks(store, generation, cut)
    if same_dense is not None:  # they were read back with their own cut
        staged = same_dense.dense_staged if same_dense.dense_places else 0
        same = {"dense_sha256": same_dense.dense_sha256, "dense_places": same_dense.dense_places}
        cut = cut.model_copy(update={**same, "dense_version": staged})
    store.await_replicas(generation)
    cut = cut.model_copy(update={"committed_ms": store.records.now_ms()})
    name = cut_name(generation, cut.version)
    records: list[Change] = [(name, None, cut.model_dump_json())]
    records += [(part.record, part.note, None) for part in parts if part.note is not None]
    needed = {cut.version: cut for cut in (after, same_dense) if cut is not None}
    _commit(store, generation, begun, records, list(needed.values()))
    store.announce(generation.model)
    store.await_replicas(generation)
    return cut


def write_cut(
    store: RowStore,
    generation: Generation,
    lock: Lease,
    *,
    changes: Iterable[tuple[int, TableChanges]],
    dense: bytes | CutRecord,
    step: int,
    clocks: Sequence[int],
    lineage: str = "",
    previous: int | None = None,
    after: CutRecord | None = None,
    above: int = 0,
    event_ms: int = 0,
    norms: Callable[[], tuple[Norm, ...]] = tuple,
    forced: bool = False,
) -> CutRecord:
    """Stages and commits a cut; servers read nothing of it before it is whole.

    Args:
        store: the store.
        generation: a complete generation.
        lock: the exporter's lease of the model.
        changes: (number of the table, changes); a table may occur several times.
        dense: the dense weights as opaque bytes, or a cut that has the same ones.
        step: see `commit_cut`.
        clocks: see there.
        lineage: see there.
        previous: see there.
        after: see there.
        forced: see there.
        above: see `begin_cut`.
        event_ms: see `commit_cut`.
        norms: called once all changes are staged; an exception that it raises ends the export
            before the commit.

    Raises:
        FailedPreconditionError: another exporter took over.
        UnavailableError, ResourceExhaustedError: the store does not answer, or is full.
    """

    def check() -> None:
        if lock.lost.is_set():
            raise FailedPreconditionError(_TAKEN_OVER)

    begun = begin_cut(store, generation, above)
    staging = CutStaging(store, generation, begun.version, check)
    for table, change in changes:
        staging.add_rows(table, change)
    same_dense = dense if isinstance(dense, CutRecord) else None
    content = b"" if isinstance(dense, CutRecord) else dense
    staging.add_dense(content)
    part = staging.finish()
    return commit_cut(
        store,
        generation,
        begun,
        [part],
        step=step,
        clocks=clocks,
        lineage=lineage,
        dense_sha256=hashlib.sha256(content).hexdigest(),
        same_dense=same_dense,
        previous=previous,
        after=after,
        norms=norms(),
        forced=forced,
        event_ms=event_ms,
    )


def _commit(
    store: RowStore,
    generation: Generation,
    begun: CutBegun,
    records: Sequence[Change],
    needed: Sequence[CutRecord],
) -> None:
    """Commits changes of records, unless one of the needed cuts is gone."""
    there = [_still_there(store, generation, cut) for cut in needed]
    while not Generations(store.records).commit(generation.model, begun.writer, [*records, *there]):
        before, there = there, [_still_there(store, generation, cut) for cut in needed]
        if there == before:  # otherwise one was folded meanwhile
            raise FailedPreconditionError(
                f"model {generation.model}: another export has begun since; this cut is not "
                "committed"
            )


def _still_there(store: RowStore, generation: Generation, cut: CutRecord) -> Change:
    """Returns a change that leaves a cut's record as it is, and fails without it."""
    name = cut_name(generation, cut.version)
    text = store.records.get(name)
    there = None if text is None else read_record(CutRecord, text, name)
    # It may be folded meanwhile.
    if there is None or there.model_copy(update={"folded": cut.folded}) != cut:
        raise FailedPreconditionError(
            f"{store.url}: the store went back in time during the export and has lost or changed "
            f"cut {cut.version:016x}; export again"
        )
    return name, text, text
