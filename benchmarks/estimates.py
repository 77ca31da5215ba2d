"""What a series of measurements says: how it grows, and how sure its median is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def slope(looks: Sequence[dict[str, float]], name: str) -> float:
    """Returns the growth of a number a cut, over the second half of the looks."""
    half = looks[len(looks) // 2 :]
    return float(np.polyfit([x["cuts"] for x in half], [x[name] for x in half], 1)[0])


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns the median of values, and its 95 % confidence interval.

    The interval is of order statistics, whose ranks are binomial. Of few values it is the range of
    all, which holds the median less surely if they are fewer than six.
    """
    ordered = sorted(values)
    half = 1.96 * np.sqrt(len(values)) / 2
    low = max(1, int(np.floor(len(values) / 2 - half)))
    high = min(len(values) - 1, int(np.ceil(len(values) / 2 + half)))
    return float(np.median(values)), ordered[low - 1], ordered[high]
