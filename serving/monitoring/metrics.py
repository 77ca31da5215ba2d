"""Counters, gauges and histograms with labels, and the text in which Prometheus reads them.

The text is TF Serving's (`prometheus_exporter.cc`), with `# HELP` lines; families by name.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hotrow.serving.monitoring.metric_help import help_of

Labels = tuple[str, ...]

# Clients choose some labels; beyond this number, all further label values share one cell.
_MOST_CELLS = 4096
_OTHER = "other"


class Kind(enum.Enum):
    """The type of a family, as the text names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass
class Cell:
    """What was counted under one set of labels.

    Attributes:
        count: a counter's or gauge's value, or how many values a histogram has.
        sum: of a histogram's values.
        buckets: number of values below each bound, not cumulative, and of those above all bounds.
    """

    count: int = 0
    sum: float = 0.0
    buckets: list[int] = field(default_factory=list)


@dataclass
class Family:
    """Cells under one name. Not thread-safe.

    Attributes:
        name: as in the text.
        kind: as in the text.
        label_names: in the order of the labels.
        bounds: upper ones of a histogram's buckets.
        cells: by the values of the labels.
    """

    name: str
    kind: Kind
    label_names: Labels
    bounds: tuple[float, ...] = ()
    cells: dict[Labels, Cell] = field(default_factory=dict)

    def add(self, labels: Labels, value: float = 1) -> None:
        """Adds to a counter, or a value to a histogram."""
        cell = self._cell(labels)
        if self.kind is Kind.HISTOGRAM:
            cell.count += 1
            cell.sum += value
            # A bucket ends before its bound, as TensorFlow's do.
            cell.buckets[bisect_right(self.bounds, value)] += 1
        else:
            cell.count += int(value)

    def merge(self, cells: Mapping[Labels, Cell]) -> None:
        """Adds counts made elsewhere under the same name."""
        for labels, other in cells.items():
            cell = self._cell(labels)
            cell.count += other.count
            cell.sum += other.sum
            cell.buckets = [a + b for a, b in zip(cell.buckets, other.buckets, strict=True)]

    def _cell(self, labels: Labels) -> Cell:
        if labels not in self.cells and len(self.cells) >= _MOST_CELLS:
            labels = (_OTHER,) * len(labels)
        if labels not in self.cells:
            buckets = len(self.bounds) + 1 if self.kind is Kind.HISTOGRAM else 0
            self.cells[labels] = Cell(buckets=[0] * buckets)
        return self.cells[labels]


def merged(families: Iterable[Family]) -> list[Family]:
    """Returns new families by name; families of the same name are added up."""
    by_name: dict[str, Family] = {}
    for family in families:
        own = by_name.setdefault(
            family.name, Family(family.name, family.kind, family.label_names, family.bounds)
        )
        own.merge(family.cells)
    return [by_name[name] for name in sorted(by_name)]


def prometheus_name(name: str) -> str:
    """Returns Prometheus's name of a TensorFlow metric: `:a:b` for `/a/b`."""
    return re.sub(r"[^A-Za-z0-9_]", ":", name)


def sum_of(family: Family | None) -> int:
    """Returns a counter's or a gauge's value under all labels; 0 for any other, and for None."""
    if family is None or family.kind is Kind.HISTOGRAM:
        return 0
    return sum(cell.count for cell in family.cells.values())


def prometheus_text(families: Iterable[Family]) -> str:
    """Returns the page that a Prometheus server reads."""
    lines = []
    for family in families:
        if (text := help_of(family.name)) is not None:
            lines.append(f"# HELP {family.name} {text}")
        lines.append(f"# TYPE {family.name} {family.kind.value}")
        for labels, cell in sorted(family.cells.items()):
            pairs = [
                f'{name}="{_escaped(value)}"'
                for name, value in zip(family.label_names, labels, strict=True)
                if value  # Prometheus treats an empty label as absent
            ]
            if family.kind is Kind.HISTOGRAM:
                lines += _histogram_lines(family, pairs, cell)
            else:
                lines.append(f"{family.name}{{{','.join(pairs)}}} {cell.count}")
    return "\n".join(lines) + "\n"


def _histogram_lines(family: Family, pairs: list[str], cell: Cell) -> list[str]:
    lines = []
    below = 0
    for bound, count in zip([*family.bounds, None], cell.buckets, strict=True):
        below += count
        limit = "+Inf" if bound is None else f"{bound:g}"
        inner = ",".join([*pairs, f'le="{limit}"'])
        lines.append(f"{family.name}_bucket{{{inner}}} {below}")
    own = ",".join(pairs)
    lines.append(f"{family.name}_sum{{{own}}} {cell.sum:.17g}")
    lines.append(f"{family.name}_count{{{own}}} {below}")
    return lines


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
