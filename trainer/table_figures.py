"""What admission and expiry did to tables, for the reports of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotrow.ops.table import Table

_FIGURES = ("rows", "admitted", "refused", "waiting", "expired", "tombstones")


def watched_tables(tables: Mapping[str, Table]) -> dict[str, dict[str, int]]:
    """Returns the figures of the tables that have admission or expiry, by name.

    They are those of `Table.statistics`, totals of the whole run.
    """
    figures = {}
    for name, table in tables.items():
        if table.config.admission is not None or table.config.expiry is not None:
            told = table.statistics()
            figures[name] = {figure: told[figure] for figure in _FIGURES}
    return figures
