"""The process-wide random generators of Python and numpy, as JSON values.

Nothing of Hotrow draws from them: shuffling and first values are pure functions of the seed, and
dropout keeps its state in variables of the model. A user's own layers may.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from hotrow.errors import DataLossError


def capture_random_state() -> dict[str, Any]:
    """Returns the states of `random` and `numpy.random`."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Puts the generators where `capture_random_state` found them.

    Raises:
        DataLossError: `state` is not one.
    """
    try:
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words), gauss))
        name, keys, position, has_gauss, cached = state["numpy"]
        np.random.set_state((name, np.array(keys, np.uint32), position, has_gauss, cached))
    except (KeyError, TypeError, ValueError) as err:
        raise DataLossError(f"the random state is damaged: {err}") from err
