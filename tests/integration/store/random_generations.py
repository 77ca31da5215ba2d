"""Generations of random rows, for tests of stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotrow import _native
from hotrow.store.spec import RECORD_HEAD_BYTES, Generation, State, StoredTable

SHARDS = 16


def new_generation(store: Any, *, rows: int = 2000, dim: int = 16, tables: int = 1) -> Generation:
    """Returns a generation with the next number; its record is not written."""
    size = RECORD_HEAD_BYTES + 4 * dim
    number = store.records.next_number()
    return Generation(
        generation=f"{number:032x}",
        number=number,
        model="m",
        version=1,
        step=1,
        source="s",
        state=State.WRITING,
        schema_hash="",
        created_ms=0,
        epoch=1,
        seq=5,
        shards=SHARDS,
        tables=tuple(
            StoredTable(
                name=f"t{i}",
                dim=dim,
                row_type="float32",
                default_value=0.0,
                rows=rows,
                pages=store.pages_of(size, rows, SHARDS),
            )
            for i in range(tables)
        ),
    )


def random_rows(rows: int = 2000, dim: int = 16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns keys int64 [N], distinct, and rows uint8 [N, 4 D]."""
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(-(2**63), 2**63, rows, dtype=np.int64))
    assert len(keys) == rows
    return keys, rng.integers(0, 256, (rows, 4 * dim), dtype=np.uint8)


def digests_of(keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns what a store should return for these rows."""
    return _native.record_digests(keys, rows, SHARDS)


def versions(count: int, version: int) -> np.ndarray:
    """Returns uint64 [N]."""
    return np.full(count, version, np.uint64)


def written(store: Any, **options: Any) -> tuple[Generation, np.ndarray, np.ndarray]:
    """Writes and marks a generation of one table; returns it with keys and rows."""
    generation = new_generation(store, **options)
    keys, rows = random_rows(**options)
    store.write(generation, 0, keys, rows)
    store.set_markers(generation, [digests_of(keys, rows)])
    return generation, keys, rows
