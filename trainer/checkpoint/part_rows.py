"""The rows of a table in one checkpoint, whichever ranks wrote them.

N rows, L bytes of a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.errors import DataLossError
from hotrow.line_layout import LineLayout
from hotrow.trainer.checkpoint.line_columns import (
    cut_columns,
    join_columns,
    layout_of_columns,
)
from hotrow.trainer.checkpoint.parts import columns_of, parts_of
from hotrow.trainer.checkpoint.stored import TABLES, StoredCheckpoint
from hotrow.trainer.checkpoint.table_files import Rows, read_removed, read_rows

Keys = npt.NDArray[np.int64]


def rows_of(
    checkpoint: StoredCheckpoint, table: str, columns: range | None = None
) -> Iterator[Rows]:
    """Yields the rows of a table in a checkpoint, each once, a file at a time.

    Memory: one file. If ranks had different columns, also the rows of all needed column parts but
    the first.

    Args:
        checkpoint: the files; those of its parents are not read.
        table: the table's name.
        columns: columns of each row to read; None: all. Lines have the layout of these columns.

    Raises:
        DataLossError: a file cannot be read, or the ranks had different rows.
    """
    entry = checkpoint.table(table)
    layout = LineLayout.from_facts(entry["layout"])
    whole = range(layout.width)
    wanted = whole if columns is None else columns
    parts = parts_of(entry)
    if all(columns_of(part) == whole for part in parts):
        for part in parts:
            for rows in _files_of(checkpoint, part, layout):
                yield replace(rows, lines=cut_columns(rows.lines, layout, wanted))
        return
    first, *others = [part for part in parts if _overlap(columns_of(part), wanted)]
    rest = [_all_rows(checkpoint, part, layout) for part in others]
    for rows in _part_rows(checkpoint, first, layout):
        pieces = [(columns_of(first), rows.lines)]
        for part, (keys, lines) in zip(others, rest, strict=True):
            pieces.append((columns_of(part), lines[_places(checkpoint, table, keys, rows.keys)]))
        yield replace(rows, lines=_of_columns(pieces, layout, wanted))


def removed_of(checkpoint: StoredCheckpoint, table: str) -> Keys:
    """Returns the keys int64 [N] of rows that a checkpoint removes; a key may occur twice."""
    folder = checkpoint.path / TABLES
    names = [part["removed"] for part in parts_of(checkpoint.table(table))]
    found = [read_removed(folder / name) for name in names if name is not None]
    return np.concatenate([np.empty(0, np.int64), *found])


def _part_rows(
    checkpoint: StoredCheckpoint, part: dict[str, Any], layout: LineLayout
) -> Iterator[Rows]:
    return _files_of(checkpoint, part, layout_of_columns(layout, columns_of(part)))


def _files_of(
    checkpoint: StoredCheckpoint, part: dict[str, Any], layout: LineLayout
) -> Iterator[Rows]:
    for name in part["files"]:
        yield read_rows(checkpoint.path / TABLES / name, layout.line_bytes)


def _all_rows(
    checkpoint: StoredCheckpoint, part: dict[str, Any], layout: LineLayout
) -> tuple[Keys, npt.NDArray[np.uint8]]:
    """Returns the keys of a part, sorted, and their lines."""
    files = list(_part_rows(checkpoint, part, layout))
    line_bytes = layout_of_columns(layout, columns_of(part)).line_bytes
    keys = np.concatenate([np.empty(0, np.int64), *(rows.keys for rows in files)])
    lines = np.concatenate([np.empty((0, line_bytes), np.uint8), *(rows.lines for rows in files)])
    order = np.argsort(keys)
    return keys[order], lines[order]


def _places(checkpoint: StoredCheckpoint, table: str, keys: Keys, wanted: Keys) -> Keys:
    """Returns the index in sorted `keys` of each of `wanted`."""
    places = np.searchsorted(keys, wanted)
    if len(wanted) and (not len(keys) or (keys[np.minimum(places, len(keys) - 1)] != wanted).any()):
        raise DataLossError(
            f"{checkpoint.path}: the columns of table {table!r} are not of the same rows"
        )
    return places


def _of_columns(
    pieces: list[tuple[range, npt.NDArray[np.uint8]]], layout: LineLayout, wanted: range
) -> npt.NDArray[np.uint8]:
    """Returns the lines of `wanted` columns from pieces that together have at least these."""
    start = pieces[0][0].start
    found = range(pieces[-1][0].stop - start)
    moved = [(range(own.start - start, own.stop - start), lines) for own, lines in pieces]
    joined = layout_of_columns(layout, found)
    lines = join_columns(moved, joined)
    return cut_columns(lines, joined, range(wanted.start - start, wanted.stop - start))


def _overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)
