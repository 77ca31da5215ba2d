"""How a number grows while cuts come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def slope(looks: Sequence[dict[str, float]], name: str) -> float:
    """Returns the growth of a number a cut, over the second half of the looks."""
    half = looks[len(looks) // 2 :]
    return float(np.polyfit([x["cuts"] for x in half], [x[name] for x in half], 1)[0])
