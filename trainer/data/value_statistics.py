"""Statistics of a column's values: range, share of numbers among texts, separator."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_SEPARATORS = ("|", ";", ",")
_LEAST_SHARE = 0.2  # of values that hold a separator


class NumberStatistics:
    """Sum and range of numbers, piece by piece.

    Attributes:
        total: the sum.
        low, high: the smallest and the largest; None: no numbers.
    """

    def __init__(self) -> None:
        """Starts without numbers."""
        self.total = 0.0
        self.low: float | None = None
        self.high: float | None = None

    def add(self, numbers: pa.Array) -> None:
        """Adds int64 or float64 [N] without nulls."""
        if not len(numbers):
            return
        self.total += float(pc.sum(numbers.cast(pa.float64(), safe=False)).as_py())
        found = pc.min_max(numbers)
        low, high = float(found["min"].as_py()), float(found["max"].as_py())
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)


def number_share(counts: pa.Table) -> float:
    """Returns the share of texts that are numbers; 0 without any.

    Args:
        counts: `value`, string, and `count` of each.
    """
    numbers = pc.match_substring_regex(counts["value"], _NUMBER)
    return _share(counts, numbers)


def separator_of(counts: pa.Table) -> str | None:
    """Returns the separator of texts with several values; None if there seems to be none.

    At least a fifth of the texts contain it, and it cuts them into at most half as many distinct
    values as there are distinct texts.
    """
    for separator in _SEPARATORS:
        if _share(counts, pc.match_substring(counts["value"], separator)) < _LEAST_SHARE:
            continue
        parts = pc.list_flatten(pc.split_pattern(counts["value"], separator))
        if 2 * pc.count_distinct(parts).as_py() <= counts.num_rows:
            return separator
    return None


def _share(counts: pa.Table, chosen: pa.ChunkedArray) -> float:
    total = pc.sum(counts["count"]).as_py() or 0
    if not total:
        return 0.0
    found = pc.sum(counts.filter(chosen)["count"]).as_py() or 0
    return float(found) / float(total)
