"""Statistics of a table's cache: hit rate, prefetched rows, stall."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CacheStatistics:
    """Counts since the process made or restored the table.

    Attributes:
        slots: number of rows that the cache can hold.
        hits, misses: distinct keys of training batches whose row was, or was not, in the cache.
        prefetched: rows that prefetching brought in.
        written_back: rows updated in the tier behind the cache.
        stall_ns: time that lookups spent on bringing rows in or waiting for them.
        steps: number of training steps of the table.
    """

    slots: int
    hits: int
    misses: int
    prefetched: int
    written_back: int
    stall_ns: int
    steps: int

    @classmethod
    def of(cls, statistics: Mapping[str, Any]) -> CacheStatistics:
        """Reads the result of `Table.statistics`; counts that an older version lacks are 0."""
        return cls(*(int(statistics.get(f"cache_{name}", 0)) for name in cls.__annotations__))

    @classmethod
    def together(cls, tables: Sequence[CacheStatistics]) -> CacheStatistics:
        """Returns the sum over one or more tables that were trained in the same steps."""
        sums = {name: sum(getattr(t, name) for t in tables) for name in cls.__annotations__}
        return cls(**sums | {"steps": max(t.steps for t in tables)})

    @property
    def hit_rate(self) -> float:
        """Share of the distinct keys whose row was in the cache; NaN before the first lookup."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else math.nan

    @property
    def stall_ms(self) -> float:
        """Milliseconds of stall a step; NaN before the first step."""
        return self.stall_ns / self.steps / 1e6 if self.steps else math.nan

    def as_dict(self) -> dict[str, int | float]:
        """Returns the statistics for reports of a run."""
        return {
            "cache_slots": self.slots,
            "cache_hit_rate": self.hit_rate,
            "cache_rows_prefetched": self.prefetched,
            "cache_written_back": self.written_back,
            "cache_stall_ms": self.stall_ms,
        }

    def __str__(self) -> str:
        """Returns "hit rate 93.1%, 1,200 rows prefetched, stall 0.12 ms a step"."""
        rate = "-" if math.isnan(self.hit_rate) else f"{self.hit_rate:.1%}"
        stall = "-" if math.isnan(self.stall_ms) else f"{self.stall_ms:.2f}"
        return f"hit rate {rate}, {self.prefetched:,} rows prefetched, stall {stall} ms a step"
