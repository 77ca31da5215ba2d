"""The process-wide random generators of Python and numpy, as JSON values.

Hotrow itself does not use them: shuffling and initial values are pure functions of the seed, and
dropout keeps its state in variables of the model. A user's own layers may use them.
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


def check_random_state(state: dict[str, Any]) -> None:
    """Checks that `restore_random_state` will succeed.

    Raises:
        DataLossError: `state` is not such a state.
    """
    _set(state, random.Random(), np.random.RandomState())


def restore_random_state(state: dict[str, Any]) -> None:
    """Restores the generators to the state that `capture_random_state` returned.

    Raises:
        DataLossError: `state` is not such a state; the generators have not changed.
    """
    check_random_state(state)
    _set(state, random, np.random)


def _set(state: dict[str, Any], python: Any, numpy: Any) -> None:
    try:
        version, words, gauss = state["python"]
        name, keys, position, has_gauss, cached = state["numpy"]
        # numpy does not check this, and would read past the end of its state.
        if not (isinstance(position, int) and 0 <= position <= len(keys)):
            raise ValueError(f"position {position}")
        python.setstate((version, tuple(words), gauss))
        numpy.set_state((name, np.array(keys, np.uint32), position, has_gauss, cached))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as err:
        raise DataLossError(f"the random state is damaged: {err}") from err
