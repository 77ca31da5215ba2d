"""The keys that every system looks up: made once a run, read by each worker process.

F features, B samples a batch, S batches, R rows of all tables together. Only numpy is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
FEATURES, BATCH, SKEW = 26, 4096, 1.05


def zipf_ranks(rng: np.random.Generator, rows: int, count: int) -> Ids:
    """Returns `count` ranks in [0, rows), rank r with a probability like (r + 1) ** -1.05."""
    cumulative = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -SKEW)
    ranks: Ids = np.searchsorted(cumulative, rng.random(count) * cumulative[-1])
    return ranks


def hash_keys(ids: Ids) -> Ids:
    """Returns an arbitrary int64 for each id: a bijection (the finalizer of splitmix64)."""
    x = ids.astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))).astype(np.int64)


@dataclass(frozen=True)
class Workload:
    """What is looked up, and in how many tables.

    Attributes:
        ids: int64 [S, F, B], in [0, rows_per_table): the row of a dense table. Frequency and id
            are independent: ranks go through a random permutation.
        tables: 1, which all features share, or F.
        rows_per_table: R / tables.
        dim: weights of a row.
    """

    ids: Ids
    tables: int
    rows_per_table: int
    dim: int

    @property
    def keys(self) -> Ids:
        """Keys for hash tables, int64 [S, F, B]."""
        return hash_keys(self.ids)

    def all_keys(self, chunk: int = 262_144) -> list[Ids]:
        """Returns the keys of all rows of a table, in chunks."""
        return [
            hash_keys(np.arange(first, min(first + chunk, self.rows_per_table)))
            for first in range(0, self.rows_per_table, chunk)
        ]

    def unique_keys(self) -> list[int]:
        """Returns the number of distinct rows that each batch touches."""
        if self.tables == 1:
            return [len(np.unique(batch)) for batch in self.ids]
        return [sum(len(np.unique(feature)) for feature in batch) for batch in self.ids]

    def gradients(self) -> npt.NDArray[np.float32]:
        """Returns the gradients of the looked-up rows, [F, B, D]; the same in every step."""
        shape = (FEATURES, BATCH, self.dim)
        normal = np.random.default_rng(7).standard_normal(shape, np.float32)
        return np.asarray(normal * np.float32(1e-2))

    def save(self, path: Path) -> None:
        """Writes the workload for `load`."""
        np.savez(path, ids=self.ids, shape=[self.tables, self.rows_per_table, self.dim])

    @classmethod
    def load(cls, path: Path) -> Workload:
        """Reads what `save` wrote."""
        with np.load(path) as file:
            return cls(file["ids"], *(int(n) for n in file["shape"]))

    @classmethod
    def generate(cls, tables: int, rows: int, dim: int, batches: int) -> Workload:
        """Draws the keys of `batches` batches; each feature has its own draws."""
        rng = np.random.default_rng(1)
        per_table = rows // tables
        ranks = zipf_ranks(rng, per_table, batches * FEATURES * BATCH)
        ids = rng.permutation(per_table)[ranks].reshape(batches, FEATURES, BATCH)
        return cls(ids, tables, per_table, dim)
