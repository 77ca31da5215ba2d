"""Rows read from a table, a batch at a time. N rows, D weights, L bytes a row line."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from hotrow import _native
from hotrow.line_layout import LineLayout

Keys = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float32]
Lines = npt.NDArray[np.uint8]
Uint32s = npt.NDArray[np.uint32]

# A partition of the native table holds the keys whose mixed values share the 5 top bits; a cursor
# of an export is (partition << 32 | place), and partitions are numbered by shard first.
_PARTITIONS = 32
_CURSOR_BITS = 32
_READ_ROWS = 65536


@dataclasses.dataclass(frozen=True)
class RowBatch:
    """Rows of a table. N rows, L bytes a row line.

    Attributes:
        layout: where the parts of a line lie.
        keys: int64 [N].
        lines: uint8 [N, L].
        clocks: uint32 [N], the table's step when the row was last updated, or created.
        counts: uint32 [N], lookups in the steps that updated the row.
        places: uint32 [N], where the row lies in its partition.
    """

    layout: LineLayout
    keys: Keys
    lines: Lines
    clocks: Uint32s
    counts: Uint32s
    places: Uint32s

    @property
    def weights(self) -> Rows:
        """Float32 [N, D]; not copied if the table holds float32."""
        return self.layout.weights(self.lines)


def ranges_of_mixed_keys(
    table: _native.Table, layout: LineLayout, *, rows: int, most_rows: int
) -> Iterator[RowBatch]:
    """Yields the rows of a native table by ascending ranges of mixed keys; see `Table`."""
    pieces = 1
    while rows > pieces * _PARTITIONS * most_rows:
        pieces *= 2
    for part in range(_PARTITIONS):
        for piece in range(pieces):
            batches = [_of_piece(b, piece, pieces) for b in _partition(table, layout, part)]
            if sum(len(batch.keys) for batch in batches):
                yield _joined(layout, batches)


def mixed(keys: Keys) -> npt.NDArray[np.uint64]:
    """Returns keys int64 [N] mixed, uint64 [N]: `mix64` of the core (hash.h)."""
    x = keys.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _partition(table: _native.Table, layout: LineLayout, part: int) -> Iterator[RowBatch]:
    for shard in range(table.shard_count):
        number = shard * _PARTITIONS + part
        cursor = number << _CURSOR_BITS
        while cursor >= 0 and cursor >> _CURSOR_BITS == number:
            cursor, keys, lines, clocks, counts, places = table.export_rows(cursor, _READ_ROWS)
            yield RowBatch(layout, keys, lines, clocks, counts, places)


def _of_piece(batch: RowBatch, piece: int, pieces: int) -> RowBatch:
    """Returns the rows in one part of a partition's range."""
    if pieces == 1:
        return batch
    bits = pieces.bit_length() - 1
    # Shifted past the 5 bits that all keys of the partition share.
    number = (mixed(batch.keys) << np.uint64(5)) >> np.uint64(64 - bits)
    wanted = number == piece
    return RowBatch(
        batch.layout,
        batch.keys[wanted],
        batch.lines[wanted],
        batch.clocks[wanted],
        batch.counts[wanted],
        batch.places[wanted],
    )


def _joined(layout: LineLayout, batches: Sequence[RowBatch]) -> RowBatch:
    return RowBatch(
        layout,
        np.concatenate([b.keys for b in batches]),
        np.concatenate([b.lines for b in batches]),
        np.concatenate([b.clocks for b in batches]),
        np.concatenate([b.counts for b in batches]),
        np.concatenate([b.places for b in batches]),
    )
