"""Estimates the number of steps of a run before it reads its data."""

from __future__ import annotations

import math

from hotrow.config import RunConfig
from hotrow.trainer.data import each_path, expected_rows


def expected_steps(config: RunConfig) -> int:
    """Returns about how many steps a run will have at its end; see `expected_rows`.

    Raises:
        NotFoundError, DataError: a training file is missing or cannot be read.
    """
    rows = sum(expected_rows(path) for path in each_path(config.data.train))
    steps = config.train.epochs * math.ceil(rows / config.data.batch_size)
    return steps if config.train.max_steps is None else min(steps, config.train.max_steps)
