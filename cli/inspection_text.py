"""What `platform inspect` prints: facts, a table of tables, and the histograms of one table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from hotrow.cache_statistics import CacheStatistics
from hotrow.cli.histogram import draw, norm_bars, octave_bars
from hotrow.inspection import InspectedTable, Inspection, TrainedTable
from hotrow.line_layout import LineLayout

_TOTALS = {
    "admitted": "keys admitted",
    "refused": "occurrences refused",
    "waiting": "keys waiting",
    "expired": "rows expired",
    "tombstones": "tombstones",
    "nonfinite_updates": "updates left out: not finite",
}
_WIDTH = 100
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def summary(inspection: Inspection) -> list[str]:
    """Returns the facts of a place and one line a table."""
    lines = [f"{inspection.kind} {inspection.place}"]
    for name, value in inspection.facts.items():
        fact = f"  {name.replace('_', ' ')}: {_fact(value)}"
        lines += textwrap.wrap(fact, _WIDTH, subsequent_indent="    ", break_long_words=False)
    trained = [table.trained for table in inspection.tables if table.trained]
    heads = ["table", "rows", "dim", "bytes"]
    cells = [
        [t.name, f"{t.rows:,}", "" if t.dim is None else str(t.dim), size(t.bytes)]
        for t in inspection.tables
    ]
    total = ["all", f"{sum(t.rows for t in inspection.tables):,}", "", ""]
    if trained:
        heads += ["on disk", "a row", "weights", "state", "lookups", "top 1%", "top 10%"]
        for row, table in zip(cells, trained, strict=True):
            row += _trained_cells(table)
        total[-1] = size(sum(table.bytes or 0 for table in inspection.tables))
        total += [size(sum(table.disk_bytes for table in trained)), "", "", ""]
        total += [f"{sum(table.statistics.counts.lookups for table in trained):,}", "", ""]
    return [*lines, "", *aligned([heads, *cells, total])]


def details(table: InspectedTable, width: int, blocks: bool) -> list[str]:
    """Returns the facts of one table, and its histograms.

    Args:
        table: of a checkpoint.
        width: columns of the terminal.
        blocks: draw with Unicode's block characters.
    """
    trained = table.trained
    assert trained is not None
    statistics = trained.statistics
    lines = [f"table {table.name}"]
    lines += [f"  {name}: {text}" for name, text in _table_facts(table, trained)]
    if not table.rows:
        return lines
    norms = "  L2 norms of the weights"
    if statistics.norm_mean is not None:
        norms += (
            f" (least {statistics.norm_min:.4g}, mean {statistics.norm_mean:.4g}, "
            f"greatest {statistics.norm_max:.4g})"
        )
    ages = f"  ages: steps since a row's last update (mean {statistics.age_mean:,.1f})"
    for title, bars in (
        ("  lookups of a row", octave_bars(statistics.lookups())),
        (ages, octave_bars(statistics.ages())),
        (norms, norm_bars(statistics.norms())),
    ):
        lines += ["", title, *draw(bars, width, blocks)]
    return lines


def _table_facts(table: InspectedTable, trained: TrainedTable) -> list[tuple[str, str]]:
    statistics, totals = trained.statistics, trained.totals
    unused = statistics.counts.unused
    share = f" ({unused / table.rows:.1%})" if table.rows else ""
    facts = [
        ("rows", f"{table.rows:,} at step {trained.step:,}"),
        ("optimizer", trained.optimizer),
        ("never updated", f"{unused:,}{share}"),
        ("not finite", f"{statistics.not_finite:,}"),
    ]
    counted = [f"{totals[name]:,} {text}" for name, text in _TOTALS.items() if totals.get(name)]
    if any(totals.get(name) for name in _TOTALS if name != "admitted"):
        facts.append(("since the run began", ", ".join(counted)))
    cache = CacheStatistics.of(totals)
    if cache.slots:
        facts.append(("cache since the process began", f"{cache.slots:,} slots, {cache}"))
    return facts


def _trained_cells(table: TrainedTable) -> list[str]:
    counts = table.statistics.counts
    return [
        size(table.disk_bytes),
        f"{table.layout.line_bytes} B",
        table.layout.weights_type,
        _state(table.layout),
        f"{counts.lookups:,}",
        *(_share(counts.share_of_top(percent)) for percent in (1, 10)),
    ]


def _state(layout: LineLayout) -> str:
    """Returns a row's state as `2D float32 + 1`: values for D weights, their type, scalars."""
    vectors = "D" if layout.vectors == 1 else f"{layout.vectors}D"
    scalars = str(layout.scalars)
    if layout.vectors:
        text = f"{vectors} {layout.state_type}"
        return f"{text} + {scalars}" if layout.scalars else text
    return f"{scalars} float32" if layout.scalars else "none"


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return ("; " if any(isinstance(v, dict) for v in value) else ", ").join(
            map(_fact, value)
        ) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_fact(of)}" for name, of in value.items())
    return str(value)


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def size(count: int | None) -> str:
    """Returns bytes as `1.5 MiB`; "" for None."""
    if count is None:
        return ""
    amount = float(count)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns lines of columns: the first left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *others = (
            f"{cell:<{width}}" if not i else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *others]).rstrip())
    return lines
