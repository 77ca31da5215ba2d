"""Metrics of admission, expiry and caches of tables, for the reports of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hotrow.cache_statistics import CacheStatistics
from hotrow.ops.ranks import LONE, Ranks
from hotrow.trainer.agreement import gathered

if TYPE_CHECKING:
    from hotrow.ops.table import Table

Metrics = dict[str, int | float]
Statistics = dict[str, dict[str, int]]
"""Of each table, by name: what `Table.statistics` returns."""

_NONFINITE = "nonfinite_updates"
_METRICS = (
    "rows",
    "admitted",
    "refused",
    "waiting",
    "expired",
    "tombstones",
    "tombstones_dropped",
)
_EVERYWHERE = ("column", "replicated")  # each rank has (its part of) every row
_OF_EACH_RANK = ("cache_steps",)


def statistics_of_all(tables: Mapping[str, Table], ranks: Ranks = LONE) -> Statistics:
    """Returns the statistics of the tables over all ranks. A collective.

    Bytes, rows and totals are summed. Where each rank has all rows, or some columns of each, rows
    and totals are those of rank 0.
    """
    own = {name: table.statistics() for name, table in tables.items()}
    if ranks.size == 1:
        return own
    counts = gathered(ranks, "metrics of tables", own)
    return {name: _together(table, [one[name] for one in counts]) for name, table in tables.items()}


def _together(table: Table, counts: list[dict[str, int]]) -> dict[str, int]:
    first = counts[0]
    sums = {key: sum(one[key] for one in counts) for key in first}
    together = {**sums, **{key: first[key] for key in first if key in _OF_EACH_RANK}}
    if table.config.sharding in _EVERYWHERE:
        own = [key for key in first if key != "bytes" and not key.startswith("cache_")]
        together |= {key: first[key] for key in own}
        # Columns of a row may overflow on one rank alone.
        together[_NONFINITE] = max(one[_NONFINITE] for one in counts)
    return together


def watched_tables(tables: Mapping[str, Table], statistics: Statistics) -> dict[str, Metrics]:
    """Returns the metrics of the tables that have admission, expiry or a cache, by name.

    A table with updates that were not finite is there, too, with their number.

    Metrics of admission and expiry are those of `Table.statistics`, totals of the whole run.
    Metrics of a cache are those of `CacheStatistics`, since this process began; an unknown rate is
    NaN.
    """
    metrics: dict[str, Metrics] = {}
    for name, table in tables.items():
        config = table.config
        counts = statistics[name]
        if config.admission is not None or config.expiry is not None:
            metrics[name] = {metric: counts[metric] for metric in _METRICS}
        if config.cache is not None:
            cached = CacheStatistics.of(counts).as_dict()
            metrics[name] = {"rows": counts["rows"], **metrics.get(name, {}), **cached}
        if counts[_NONFINITE]:
            own = {"rows": counts["rows"], **metrics.get(name, {})}
            metrics[name] = {**own, _NONFINITE: counts[_NONFINITE]}
    return metrics


def cache_of_all(tables: Mapping[str, Table], statistics: Statistics) -> CacheStatistics | None:
    """Returns the metrics of the caches of all tables together; None: no table has a cache."""
    cached = [
        CacheStatistics.of(statistics[name])
        for name, table in tables.items()
        if table.config.cache is not None
    ]
    return CacheStatistics.together(cached) if cached else None
