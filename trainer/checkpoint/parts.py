"""Manifest entries of tables whose rows several ranks have, and functions that read them.

In format 2 a table's entry names the files of one process. In format 3 it has a list of `parts`,
one for each rank with rows of its own; each part is like an entry of format 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hotrow.line_layout import LineLayout

COLUMN, REPLICATED = "column", "replicated"
"""The ways of splitting in which a rank has (its part of) every row."""

_ALIKE = ("optimizer", "shards", "step", "sharding", "owner", "ranks")
_SUMS = ("size", "rows", "removed_rows")


def entry_of(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns a table's entry, made from each rank's entry in the order of the ranks."""
    first = parts[0]
    sharding = first["sharding"]
    statistics = [part["statistics"] for part in parts]
    entry = {
        **{key: first[key] for key in _ALIKE},
        **{key: sum(part[key] for part in parts) for key in _SUMS},
        "layout": first["layout"],
        "digest": sum_of_digests([part["digest"] for part in parts]),
        "nonfinite_rows": sum(part["nonfinite_rows"] for part in parts),
        "statistics": {key: sum(one[key] for one in statistics) for key in statistics[0]},
        "parts": [
            {key: value for key, value in part.items() if key not in _ALIKE} for part in parts
        ],
    }
    if sharding == REPLICATED:
        alike = (*_SUMS, "nonfinite_rows", "digest", "statistics")
        entry |= {key: first[key] for key in alike}
        entry["parts"] = entry["parts"][:1]
    if sharding == COLUMN:
        entry |= {key: first[key] for key in _SUMS}
        # At least: which rows these are on each rank is not known here.
        entry["nonfinite_rows"] = max(part["nonfinite_rows"] for part in parts)
        entry["statistics"] = {
            **first["statistics"],
            "bytes": sum(one["bytes"] for one in statistics),
            "nonfinite_updates": max(one["nonfinite_updates"] for one in statistics),
        }
        entry["digest"] = None
        entry["layout"] = whole_layout(
            first["layout"], sum(len(columns_of(part)) for part in parts)
        )
    return entry


def parts_of(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the parts of a table's entry; an entry of format 2 is its own only part."""
    if "parts" in entry:
        parts: list[dict[str, Any]] = entry["parts"]
        return parts
    return [{**entry, "rank": 0, "columns": [0, entry["layout"]["width"]]}]


def nonfinite_rows(tables: dict[str, Any]) -> dict[str, int]:
    """Returns how many of the written rows hold a NaN or an infinity, for tables with such rows.

    Args:
        tables: a manifest's entries; older ones count no such rows.
    """
    counts = {name: int(entry.get("nonfinite_rows", 0)) for name, entry in tables.items()}
    return {name: count for name, count in counts.items() if count}


def columns_of(part: dict[str, Any]) -> range:
    """Returns the columns of each row that a part has."""
    return range(*part["columns"])


def files_of(entry: dict[str, Any]) -> list[str]:
    """Returns the names of all files of a table."""
    names = []
    for part in parts_of(entry):
        names += [*part["files"], *filter(None, (part["state"], part["removed"]))]
    return names


def whole_layout(own: dict[str, Any], width: int) -> dict[str, Any]:
    """Returns the layout of lines with all `width` columns, from that with some columns."""
    layout = replace(LineLayout.from_facts(own), width=width)
    offsets = ("width", "state_offset", "scalars_offset", "line_bytes")
    return {**own, **{name: getattr(layout, name) for name in offsets}}


def sum_of_digests(digests: Sequence[str | None]) -> str | None:
    """Returns the digest of all rows: two sums over them, mod 2^64 (see `core/base/digest.h`)."""
    halves = [(int(one[:16], 16), int(one[16:], 16)) for one in digests if one is not None]
    if len(halves) < len(digests):
        return None
    return "".join(f"{sum(half) % 2**64:016x}" for half in zip(*halves, strict=True))
