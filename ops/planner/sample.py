"""Measures the tables of a model on a sample of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hotrow.ops.planner.batch_facts import BatchFacts, FeatureKeys, measure_batch
from hotrow.ops.planner.distinct_rows import DistinctRows
from hotrow.ops.planner.facts import BY_RANK, Floats, TableFacts
from hotrow.spec import FeatureConfig, TableConfig


class Sample:
    """Measures the tables of a model, global batch by global batch.

    Memory: one batch; and for each table 1.5 MB plus 100 bytes for each batch and rank.

    Attributes:
        batches: number of batches added. rows: samples in them.
    """

    def __init__(self, features: Sequence[FeatureConfig], ranks: int) -> None:
        """Starts without batches.

        Args:
            features: the model's features.
            ranks: N, 1 or more.
        """
        self.batches = 0
        self.rows = 0
        self._ranks = ranks
        self._tables: dict[str, _Table] = {}
        for feature in features:
            table = self._tables.setdefault(feature.table.name, _Table(feature.table, ranks))
            table.features.append(feature)

    def add(self, batch: Mapping[str, FeatureKeys], size: int) -> None:
        """Adds a global batch.

        Args:
            batch: the keys of each feature, by its name.
            size: B.
        """
        self.batches += 1
        self.rows += size
        # Tables that read the same columns, wide and deep, are measured once.
        known: dict[tuple[object, ...], BatchFacts] = {}
        for table in self._tables.values():
            hashed = table.config.hash_owner
            pooled = [feature.resolved_combiner is not None for feature in table.features]
            columns = [batch[feature.name] for feature in table.features]
            same = (hashed, *pooled, *map(id, columns))
            if same not in known:
                known[same] = measure_batch(columns, pooled, size, self._ranks, hashed)
            table.add(known[same])

    def facts(self, total_rows: float | None = None) -> dict[str, TableFacts]:
        """Returns the facts of each table; needs at least one batch.

        Args:
            total_rows: samples of all data; None: unknown.
        """
        growth = None if total_rows is None or not self.rows else total_rows / self.rows
        return {name: table.facts(growth) for name, table in self._tables.items()}


class _Table:
    """Collects a table's facts."""

    def __init__(self, config: TableConfig, ranks: int) -> None:
        self.config = config
        self.features: list[FeatureConfig] = []
        self._ranks = ranks
        self._by_rank: dict[str, list[Floats]] = {name: [] for name in BY_RANK}
        self._hottest: list[float] = []
        self._rows = DistinctRows()

    def add(self, batch: BatchFacts) -> None:
        for name, values in batch.by_rank.items():
            self._by_rank[name].append(values)
        self._hottest.append(batch.hottest)
        self._rows.add(batch.distinct, int(batch.by_rank["lookups"].sum()))

    def facts(self, growth: float | None) -> TableFacts:
        expected = self._rows.seen if growth is None else self._rows.expected(growth)
        if self.config.vocabulary_size is not None:
            expected = min(expected, float(self.config.vocabulary_size))
        return TableFacts(
            **{name: np.stack(values) for name, values in self._by_rank.items()},
            hottest=sum(self._hottest) / len(self._hottest),
            seen=self._rows.seen,
            rows=expected,
            largest_share=self._rows.largest_share(self._ranks, self.config.hash_owner),
        )
