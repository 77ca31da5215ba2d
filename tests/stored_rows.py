"""Rows to put into stores: arrays as a source of exports, and the record of a generation."""

from __future__ import annotations

import numpy as np

from hotrow import _native
from hotrow.ops.row_batch import mixed
from hotrow.store.full_export import Exported
from hotrow.store.generations import Generations
from hotrow.store.row_store import RowStore
from hotrow.store.spec import RECORD_HEAD_BYTES, Generation, StoredTable
from hotrow.store.whole_pages import whole_pages


def exported(version: int = 1, source: str = "rows", model: str = "m") -> Exported:
    return Exported(model=model, version=version, step=7, source=source, schema_hash="schema")


def float_rows(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Returns float32 [count, dim]."""
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def some_keys(count: int, seed: int = 0) -> np.ndarray:
    """Returns distinct keys int64 [count] of both signs."""
    bits = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, 2 * count, np.int64)
    return np.unique(bits)[:count]


class ArrayRows:
    """Rows in memory; a `TableSource`.

    Attributes:
        keys: int64 [N]. weights: float32 [N, D].
    """

    def __init__(self, name, keys, weights, row_type="float32", pieces=4):
        order = np.argsort(mixed(keys))
        self.keys = np.ascontiguousarray(keys[order])
        self.weights = np.ascontiguousarray(weights[order])
        self.table = StoredTable(
            name=name,
            dim=weights.shape[1],
            row_type=row_type,
            default_value=0.0,
            rows=len(keys),
        )
        self.rows = _native.encode_rows(row_type, self.weights)
        self._pieces = pieces

    def pieces(self):
        number = (mixed(self.keys) >> np.uint64(64 - 16)) * self._pieces >> np.uint64(16)
        for piece in range(self._pieces):
            wanted = number == piece
            yield (
                np.ascontiguousarray(self.keys[wanted]),
                np.ascontiguousarray(self.rows[wanted]),
            )


def begun(store: RowStore, *sources: ArrayRows, shards: int = 16) -> Generation:
    """Returns a new generation with tables for the rows, to which none was written."""
    tables = [
        s.table.model_copy(
            update={
                "pages": store.pages_of(RECORD_HEAD_BYTES + s.table.row_bytes, s.table.rows, shards)
            }
        )
        for s in sources
    ]
    what = exported()
    generation = Generations(store.records).begin(
        model=what.model,
        version=what.version,
        step=what.step,
        source=what.source,
        schema_hash=what.schema_hash,
        tables=tables,
        shards=shards,
    )
    store.begin(generation)
    return generation


def written(store: RowStore, *sources: ArrayRows, shards: int = 16) -> Generation:
    """Returns a generation that holds the rows, and is marked as whole."""
    generation = begun(store, *sources, shards=shards)
    for number, source in enumerate(sources):
        pages = generation.tables[number].pages
        for keys, rows in whole_pages(source.pieces(), shards, pages):
            store.write(generation, number, keys, rows)
    store.set_markers(generation, [_native.record_digests(s.keys, s.rows, shards) for s in sources])
    return generation


def make_live(store: RowStore, generation: Generation) -> None:
    """Makes a generation live, as its model's newest writer."""
    generations = Generations(store.records)
    generations.make_live(generation, generations.next_epoch(generation.model))
