"""What admission, expiry and the cache did to tables, for the reports of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hotrow.cache_figures import CacheFigures

if TYPE_CHECKING:
    from hotrow.ops.table import Table

Figures = dict[str, int | float]

_FIGURES = ("rows", "admitted", "refused", "waiting", "expired", "tombstones")


def watched_tables(tables: Mapping[str, Table]) -> dict[str, Figures]:
    """Returns the figures of the tables that have admission, expiry or a cache, by name.

    Those of admission and expiry are of `Table.statistics`, totals of the whole run. Those of a
    cache are of `CacheFigures`, since this process began; a rate that is not known yet is NaN.
    """
    figures: dict[str, Figures] = {}
    for name, table in tables.items():
        config = table.config
        told = table.statistics()
        if config.admission is not None or config.expiry is not None:
            figures[name] = {figure: told[figure] for figure in _FIGURES}
        if config.cache is not None:
            cached = CacheFigures.of(told).as_dict()
            figures[name] = {"rows": told["rows"], **figures.get(name, {}), **cached}
    return figures


def cache_of_all(tables: Mapping[str, Table]) -> CacheFigures | None:
    """Returns the figures of the caches of all tables together; None: there is no cache."""
    cached = [
        CacheFigures.of(table.statistics())
        for table in tables.values()
        if table.config.cache is not None
    ]
    return CacheFigures.together(cached) if cached else None
