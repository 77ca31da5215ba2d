"""Writes a generation: streams it beside the live one, verifies it, resumes after a crash.

V virtual shards, N rows, B bytes of a stored row.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hotrow import _native
from hotrow.errors import DataLossError
from hotrow.store.cuts import cuts_of
from hotrow.store.generations import Generations, ModelRecord
from hotrow.store.leases import Lease
from hotrow.store.record_format import RECORD_FORMAT, damaged, read_object
from hotrow.store.row_store import Keys, Records, Rows, RowStore, ShardDigests
from hotrow.store.spec import (
    DEFAULT_SHARDS,
    RECORD_HEAD_BYTES,
    Generation,
    Origin,
    State,
    StoredTable,
)
from hotrow.store.whole_pages import whole_pages
from hotrow.store.withdrawn_cuts import withdrawn_from

_PROGRESS = "progress/"
# A shard that differs is written again; a difference after this many writes is no accident.
_MOST_REPAIRS = 5
# A table that is to grow is laid out for at least so many rows.
_ROWS_OF_GROWING = 65_536


class TableSource(Protocol):
    """The rows of one table, to be exported.

    Attributes:
        table: description of the rows; `rows` is their expected number.
    """

    @property
    def table(self) -> StoredTable:
        """Description of the rows."""

    def pieces(self) -> Iterator[tuple[Keys, Rows]]:
        """Yields keys int64 [N] and rows uint8 [N, B]; every call yields the same.

        Each piece has all rows of a range of mixed keys, and the ranges ascend.
        """


@dataclass(frozen=True)
class Exported:
    """The origin of a generation's rows.

    Attributes:
        model, version, step: those of the version.
        source: equal for exports of the same rows in the same form; an unfinished one is resumed.
        schema_hash: that of the manifest.
        origin: the state from which an incremental export continues; None: none can.
    """

    model: str
    version: int
    step: int
    source: str
    schema_hash: str
    origin: Origin | None = None


def write_generation(
    store: RowStore,
    exported: Exported,
    sources: Sequence[TableSource],
    lock: Lease,
    *,
    shards: int = DEFAULT_SHARDS,
    growth: float = 1.0,
    writer: ModelRecord | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Generation:
    """Writes and verifies a generation; returns it, complete and not yet live.

    It resumes an unfinished generation with the same rows for the same version. It takes over a
    complete one whose version was never finished, if that one is whole.

    It verifies rows by count and digest of every virtual shard, read back from the store, and
    writes a shard that differs again (for example when a failover lost acknowledged writes).

    Args:
        store: the store.
        exported: the origin of the rows.
        sources: the tables.
        lock: the exporter's lease of the model (`leases.lock_exports`).
        shards: virtual shards, V.
        growth: for how many times its rows each table is laid out; above 1 for at least 65,536.
        writer: the epoch that the exporter took (`Generations.next_epoch`); None: takes one.
        report: called with lines of progress.

    Raises:
        FailedPreconditionError: the store may evict rows, or the lease was lost.
        ResourceExhaustedError: the store is full. Rows written so far stay, and can be resumed.
        UnavailableError: the store does not answer. Rows written so far stay, and can be resumed.
        DataLossError: the store keeps returning other rows than were written.
    """
    store.check_safe_for_rows()
    generation, written = _resume_or_begin(store, exported, sources, shards, growth, writer)
    store.begin(generation)
    if written:
        report(f"resuming generation {generation.generation}")
    progress = _Progress(store.records, generation, written, lock)
    expected = [
        _write_table(store, generation, number, source, progress, report)
        for number, source in enumerate(sources)
    ]
    if generation.state is State.COMPLETE:
        if exported.origin is None:
            return generation
        return Generations(store.records).note_origin(generation, exported.origin)
    # Markers first: a marker that exists after its rows were read proves them, since a failover
    # that loses rows also loses later writes.
    for _ in range(_MOST_REPAIRS):
        lock.check()
        store.set_markers(generation, expected)
        for number, source in enumerate(sources):
            report(f"table {source.table.name}: verifying")
            _verify(store, generation, number, source, expected[number], lock, report)
        if not store.missing_markers(generation):
            break
    else:
        raise DataLossError(f"store {store.url} keeps losing what was written; is it failing over?")
    lock.check()
    tables = [
        _finished(table, digests)
        for table, digests in zip(generation.tables, expected, strict=True)
    ]
    complete = Generations(store.records).complete(generation, tables, exported.origin)
    forget_progress(store.records, generation)
    return complete


def forget_progress(records: Records, generation: Generation) -> None:
    """Removes the record of an export's progress."""
    name = _PROGRESS + generation.generation
    records.swap(name, records.get(name), None)


class _Progress:
    """The pieces that the store has acknowledged, counted over all tables."""

    def __init__(self, records: Records, generation: Generation, written: int, lock: Lease) -> None:
        self._records = records
        self._name = _PROGRESS + generation.generation
        self._written = written
        self._lock = lock
        self._piece = 0

    def next_is_written(self) -> bool:
        """Advances to the next piece; returns whether an earlier export wrote it."""
        self._lock.check()
        self._piece += 1
        return self._piece <= self._written

    def note(self) -> None:
        """Records that the store has the piece."""
        text = json.dumps({"format": RECORD_FORMAT, "pieces": self._piece})
        self._records.swap(self._name, self._records.get(self._name), text)


def _resume_or_begin(
    store: RowStore,
    exported: Exported,
    sources: Sequence[TableSource],
    shards: int,
    growth: float,
    writer: ModelRecord | None,
) -> tuple[Generation, int]:
    generations = Generations(store.records)
    for generation in generations.all(exported.model):
        same = generation.source == exported.source and generation.version == exported.version
        if not same or generation.shards != shards:
            continue
        if generation.state is State.COMPLETE and _is_whole(store, generation):
            return generation, sys.maxsize
        if generation.state is State.WRITING:
            name = _PROGRESS + generation.generation
            text = store.records.get(name)
            return generation, 0 if text is None else _pieces_written(text, name)
    tables = []
    for table in (source.table for source in sources):
        rows = _rows_to_plan(table.rows, growth)
        pages = store.pages_of(RECORD_HEAD_BYTES + table.row_bytes, rows, shards)
        planned = 0 if growth == 1.0 else rows
        tables.append(table.model_copy(update={"pages": pages, "planned_rows": planned}))
    begun = generations.begin(
        model=exported.model,
        version=exported.version,
        step=exported.step,
        source=exported.source,
        schema_hash=exported.schema_hash,
        tables=tables,
        shards=shards,
        writer=writer,
    )
    return begun, 0


def _rows_to_plan(rows: int, growth: float) -> int:
    """Returns how many rows a table is laid out for; pages that no row needs cost nothing."""
    return rows if growth == 1.0 else max(int(rows * growth), _ROWS_OF_GROWING)


def _pieces_written(text: str, name: str) -> int:
    pieces = read_object(text, name).get("pieces")
    if not isinstance(pieces, int):
        raise damaged(name, f"pieces: {pieces!r}")
    return pieces


def _is_whole(store: RowStore, generation: Generation) -> bool:
    """Returns whether a complete generation holds exactly the exported rows, and nothing newer."""
    if store.missing_markers(generation) or cuts_of(store.records, generation):
        return False
    if withdrawn_from(store.records, generation) is not None:
        return False  # servers may show newer rows than it holds
    for number, table in enumerate(generation.tables):
        if _finished(table, store.digests(generation, number)) != table:
            return False
    return True


def _write_table(
    store: RowStore,
    generation: Generation,
    number: int,
    source: TableSource,
    progress: _Progress,
    report: Callable[[str], None],
) -> ShardDigests:
    """Writes the remaining rows; returns the digests uint64 [V, 3] of all rows."""
    expected = np.zeros((generation.shards, 3), np.uint64)
    done = 0
    for keys, rows in _pieces(generation, number, source):
        expected += _native.record_digests(keys, rows, generation.shards)
        if not progress.next_is_written():
            store.write(generation, number, keys, rows)
            progress.note()
        done += len(keys)
        report(f"table {source.table.name}: {done} of {source.table.rows} rows")
    return expected


def _pieces(
    generation: Generation, number: int, source: TableSource
) -> Iterator[tuple[Keys, Rows]]:
    return whole_pages(source.pieces(), generation.shards, generation.tables[number].pages)


def _verify(
    store: RowStore,
    generation: Generation,
    number: int,
    source: TableSource,
    expected: ShardDigests,
    lock: Lease,
    report: Callable[[str], None],
) -> None:
    """Compares every shard with the written rows, and writes those that differ again."""
    there = store.digests(generation, number)
    for _ in range(_MOST_REPAIRS):
        wrong = np.flatnonzero((there != expected).any(axis=1)).tolist()
        if not wrong:
            return
        lock.check()
        report(f"table {source.table.name}: {len(wrong)} shards differ and are written again")
        for keys, rows in _pieces(generation, number, source):
            store.write(generation, number, keys, rows, wrong)
        again = store.digests(generation, number, wrong)
        there[wrong] = again[wrong]
    wrong = np.flatnonzero((there != expected).any(axis=1)).tolist()
    if wrong:
        raise DataLossError(
            f"store {store.url}, table {source.table.name}: {len(wrong)} shards hold other rows "
            f"than were written, also after {_MOST_REPAIRS} attempts; does another process write "
            "there?"
        )


def _finished(table: StoredTable, digests: ShardDigests) -> StoredTable:
    rows, low, high = (int(total) for total in digests.sum(axis=0, dtype=np.uint64))
    return table.model_copy(update={"rows": rows, "digest": f"{low:016x}{high:016x}"})
