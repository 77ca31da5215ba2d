"""The limit of rows whose lines are on disk: a file numbers its lines with 32 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hotrow.errors import ResourceExhaustedError

if TYPE_CHECKING:
    from hotrow.ops.table import Table

MOST_ROWS = 4_000_000_000
"""Rows of a table on a rank. The file holds 2^32 - 2 lines, of which some are old versions."""

WARN_SHARE = 0.8

_ADVICE = "use more ranks, `admission` or `expiry`, or keep the rows in RAM"
_SPLIT = ("row", "row_broadcast")
_EVERYWHERE = ("column", "replicated")


def warning(tables: Mapping[str, Table]) -> str | None:
    """Returns a line about a table of this rank whose file is nearly full; None: none is."""
    for name, table in tables.items():
        if _is_on_disk(table) and table.size >= WARN_SHARE * MOST_ROWS:
            return (
                f"warning: table {name!r} has {table.size:,} rows on disk here; its file ends at "
                f"about {MOST_ROWS:,}: {_ADVICE}"
            )
    return None


def check_fits(name: str, table: Table, entry: Mapping[str, Any], ranks: int) -> None:
    """Checks that a table may hold the rows of a checkpoint.

    Args:
        name: the table's name.
        table: this rank's part of it.
        entry: the table's entry in the checkpoint's manifest.
        ranks: how many ranks train.

    Raises:
        ResourceExhaustedError: its file on disk cannot hold them.
    """
    rows = entry["size"]
    if entry.get("sharding") in _EVERYWHERE:  # the sum over ranks that have every row
        rows //= len(entry["parts"])
    here = -(-rows // ranks) if table.config.sharding in _SPLIT else rows
    if _is_on_disk(table) and here > MOST_ROWS:
        raise ResourceExhaustedError(
            f"table {name!r} has {here:,} rows for a rank in the checkpoint; with lines on disk "
            f"it holds about {MOST_ROWS:,}: {_ADVICE}"
        )


def _is_on_disk(table: Table) -> bool:
    return table.config.cache is not None and table.config.cache.disk is not None
