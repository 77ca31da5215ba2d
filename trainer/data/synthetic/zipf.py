"""Ranks with Zipf-like popularity in closed form, without a table of all keys."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from hotrow.trainer.data.batch import Ints

Array: TypeAlias = npt.NDArray[np.float64]

NEAR_ONE = 1e-6  # below this distance from 1 the exponent is taken as 1


class Zipf:
    """A bounded Pareto law on [1, keys + 1), cut to whole numbers.

    Rank r (from 0) has the probability that the law gives to [r + 1, r + 2): for large r that of
    Zipf's law, (r + 1) ** -skew up to a factor.
    """

    def __init__(self, keys: int, skew: float) -> None:
        """Prepares the law for `keys` >= 1 ranks and a `skew` >= 0."""
        self.keys = keys
        self._power = 1.0 - skew
        if abs(self._power) < NEAR_ONE:
            self._power = 0.0
        self._scale = float(self._antiderivative(np.array([keys + 1.0]))[0])

    def draw(self, uniform: Array) -> Ints:
        """Returns the ranks int64 [B], 0 the most popular, for numbers [B] uniform in [0, 1)."""
        if self._power == 0.0:
            x = np.exp(uniform * self._scale)
        else:
            x = (1.0 + self._power * self._scale * uniform) ** (1.0 / self._power)
        ranks: Ints = np.clip(x.astype(np.int64) - 1, 0, self.keys - 1)
        return ranks

    def probability(self, ranks: Ints) -> Array:
        """Returns the probabilities float64 [N] of ranks int64 [N]."""
        lower = ranks.astype(np.float64) + 1.0
        return (self._antiderivative(lower + 1.0) - self._antiderivative(lower)) / self._scale

    def _antiderivative(self, x: Array) -> Array:
        """Returns the integral of t ** -skew from 1 to x."""
        if self._power == 0.0:
            return np.log(x)
        return (x**self._power - 1.0) / self._power
