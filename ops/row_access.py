"""Rows of a table by key, between steps: test, assign, remove, and write to files.

N keys, D weights of a row, L bytes of a row line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from hotrow.errors import InvalidArgumentError, UnimplementedError
from hotrow.ops.row_batch import Keys, Rows

if TYPE_CHECKING:
    from hotrow.ops.table import Table

BATCH_ROWS = 65536


def as_keys(keys: npt.ArrayLike) -> Keys:
    """Returns keys as contiguous int64; refuses types whose conversion would change values."""
    array = np.asarray(keys)
    if array.size and (array.dtype.kind not in "iu" or array.dtype == np.uint64):
        raise InvalidArgumentError(f"keys of type {array.dtype}; must be signed integers")
    return np.ascontiguousarray(array, np.int64)


def contains(table: Table, keys: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Returns bool [N]: whether keys int64 [N] have rows."""
    _refuse_ranks(table, "searched by key")
    found: npt.NDArray[np.bool_] = table._native.has_rows(_flat_keys(keys)).view(np.bool_)
    return found


def assign(table: Table, keys: npt.ArrayLike, weights: npt.ArrayLike) -> None:
    """Sets the weights of rows; see `Table.assign`."""
    _refuse_ranks(table, "assigned")
    wanted = _flat_keys(keys)
    values = np.ascontiguousarray(weights, np.float32)
    if values.shape != (len(wanted), table.dim):
        raise InvalidArgumentError(
            f"table {table.name!r}: weights of shape {values.shape}; must be "
            f"({len(wanted)}, {table.dim}), a row a key"
        )
    distinct, times = np.unique(wanted, return_counts=True)
    if len(distinct) != len(wanted):
        raise InvalidArgumentError(
            f"table {table.name!r}: key {distinct[times > 1][0]} is given twice; keys must be "
            "distinct"
        )
    if not len(wanted):
        return
    found, _, lines, _, counts, _ = table._native.read_rows(wanted)
    new = ~found.view(np.bool_)
    lines[new] = _initial_line(table)
    counts[new] = 0
    layout = table.line_layout
    layout.put_weights(lines, values)
    finite = np.isfinite(layout.weights(lines)).all(axis=1)
    if not finite.all():
        raise InvalidArgumentError(
            f"table {table.name!r}: weights of key {wanted[~finite][0]} are not finite as "
            f"{layout.weights_type}"
        )
    # The clock of a row that training has just created: larger than the step of any export.
    clocks = np.full(len(wanted), table.step + 1, np.uint32)
    table._native.import_rows(wanted, lines, clocks, counts)


def remove(table: Table, keys: npt.ArrayLike) -> int:
    """Removes rows with tombstones; see `Table.remove`."""
    _refuse_ranks(table, "removed")
    return int(table._native.bury_rows(np.unique(_flat_keys(keys))))


def batches(table: Table, batch_rows: int = BATCH_ROWS) -> Iterator[tuple[Keys, Rows]]:
    """Yields keys int64 [N] and weights float32 [N, D] of all rows."""
    _refuse_ranks(table, "read as a whole")
    for batch in table.export_batches(batch_rows):
        yield batch.keys, batch.weights


def save_npz(table: Table, path: str | Path) -> None:
    """Writes `keys` int64 [R] and `weights` float32 [R, D] of all R rows to a .npz file."""
    none = (np.zeros(0, np.int64), np.zeros((0, table.dim), np.float32))
    keys, weights = zip(none, *batches(table), strict=True)
    np.savez(path, keys=np.concatenate(keys), weights=np.concatenate(weights))


def save_parquet(table: Table, path: str | Path) -> None:
    """Writes columns `key` and `weights`, a list of D float32, batch by batch."""
    _refuse_ranks(table, "read as a whole")
    rows = pa.list_(pa.float32(), table.dim)
    schema = pa.schema([("key", pa.int64()), ("weights", rows)])
    with pq.ParquetWriter(path, schema) as writer:
        for keys, weights in batches(table):
            flat = pa.array(np.ascontiguousarray(weights).reshape(-1))
            lists = pa.FixedSizeListArray.from_arrays(flat, table.dim)
            writer.write_batch(pa.record_batch([pa.array(keys), lists], schema=schema))


def _flat_keys(keys: npt.ArrayLike) -> Keys:
    flat = as_keys(keys)
    if flat.ndim != 1:
        raise InvalidArgumentError(f"keys of shape {flat.shape}; must be [N]")
    return flat


def _initial_line(table: Table) -> Any:
    """Returns the line uint8 [L] of a row that no step has updated; its weights do not matter."""
    if table._empty_line is None:
        table._empty_line = table.like_one_row()
    return table._empty_line


def _refuse_ranks(table: Table, what: str) -> None:
    if table.ranks.size > 1:
        raise UnimplementedError(
            f"table {table.name!r} is split over {table.ranks.size} ranks, and its rows cannot be "
            f"{what}; do it in one process, from a checkpoint"
        )
