"""The most used rows of a version; a server fills its cache with them before it serves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hotrow.ops.row_batch import Keys, Uint32s
from hotrow.ops.table import Table

MOST_ROWS = 1_000_000
"""Rows that are listed, of all tables together."""
_MAGIC = b"HRHOT001"
_BATCH_ROWS = 65536


def write_hot_rows(tables: Sequence[Table], path: Path, most: int = MOST_ROWS) -> int:
    """Writes the keys of the most used rows (docs/formats.md); returns how many.

    Only rows that training looked up count. Table and key order rows of equal counts.

    Args:
        tables: in the order of the generation.
        path: the file to write.
        most: largest number of rows, over all tables.
    """
    keys, counts, numbers = [], [], []
    for number, table in enumerate(tables):
        own_keys, own_counts = _most_used(table, most)
        keys.append(own_keys)
        counts.append(own_counts)
        numbers.append(np.full(len(own_keys), number, np.uint32))
    all_keys = np.concatenate([*keys, np.empty(0, np.int64)])
    all_counts = np.concatenate([*counts, np.empty(0, np.uint32)])
    all_numbers = np.concatenate([*numbers, np.empty(0, np.uint32)])
    order = np.lexsort((all_keys, all_numbers, -all_counts.astype(np.int64)))[:most]
    with path.open("wb") as file:
        file.write(_MAGIC)
        file.write(np.uint64(len(order)).tobytes())
        file.write(all_keys[order].tobytes())
        file.write(all_numbers[order].tobytes())
    return len(order)


def _most_used(table: Table, most: int) -> tuple[Keys, Uint32s]:
    """Returns keys int64 [N] and counts uint32 [N] of at most `most` rows that were used."""
    keys: Keys = np.empty(0, np.int64)
    counts: Uint32s = np.empty(0, np.uint32)
    for batch in table.export_batches(_BATCH_ROWS):
        used = batch.counts > 0
        keys = np.concatenate([keys, batch.keys[used]])
        counts = np.concatenate([counts, batch.counts[used]])
        if len(keys) > 2 * most:
            keys, counts = _first(keys, counts, most)
    return _first(keys, counts, most)


def _first(keys: Keys, counts: Uint32s, most: int) -> tuple[Keys, Uint32s]:
    order = np.lexsort((keys, -counts.astype(np.int64)))[:most]
    return keys[order], counts[order]
