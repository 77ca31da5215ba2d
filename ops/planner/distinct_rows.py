"""How many rows a table has in the sample and will have in all data, in bounded memory.

Distinct keys are counted by adaptive sampling (Wegman; Flajolet, "On adaptive sampling", 1990):
only keys whose hash lies below a bound are kept, and the bound is halved when they are too many.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hotrow.ops.planner.owners import mix64, owners_of

Ints = npt.NDArray[np.int64]

_KEPT = 1 << 16
"""Keys that are kept at most: the count is off by 0.4 % (one deviation) beyond that."""
_WAITING = 1 << 17


class DistinctRows:
    """Counts the distinct keys of a table over the batches of a sample."""

    def __init__(self) -> None:
        """Starts without keys."""
        self._kept: Ints = np.zeros(0, np.int64)
        self._pieces: list[Ints] = []
        self._waiting = 0
        self._halvings = 0
        self._lookups = 0
        # (lookups, distinct keys) after 1, 2, 4, 8, ... batches.
        self._curve: list[tuple[int, float]] = []
        self._batches = 0

    def add(self, distinct: Ints, lookups: int) -> None:
        """Adds the distinct keys int64 [U] of a batch, and its number of lookups."""
        self._batches += 1
        self._lookups += lookups
        self._pieces.append(self._below(distinct))
        self._waiting += len(self._pieces[-1])
        power_of_two = self._batches & (self._batches - 1) == 0
        if power_of_two or self._waiting > _WAITING:
            self._merge()
        if power_of_two:
            self._curve.append((self._lookups, self.seen))

    @property
    def seen(self) -> float:
        """Distinct keys so far."""
        self._merge()
        return float(len(self._kept) << self._halvings)

    def expected(self, growth: float) -> float:
        """Returns the distinct keys of data that is `growth` times as long as the sample.

        By Heaps' law, each doubling of the lookups multiplies the distinct keys by 2 ^ b. The
        exponents of the sample's last two doublings give those of the next ones: the ratio of
        successive exponents stays as in the sample.
        """
        if growth <= 1 or len(self._curve) < 2:
            return self.seen
        points = np.log2(np.maximum(self._curve[-3:], 1))
        steps = np.diff(points, axis=0)
        exponents = steps[:, 1] / np.maximum(steps[:, 0], 1e-9)
        last = float(min(max(exponents[-1], 0.0), 1.0))
        ratio = float(exponents[-1] / exponents[0]) if len(exponents) > 1 and exponents[0] else 1.0
        ratio = min(max(ratio, 0.0), 1.0)
        doublings = math.log2(growth)
        terms = doublings if ratio > 0.999 else (1 - ratio**doublings) / (1 - ratio)
        return self.seen * math.pow(2.0, last * ratio * terms)

    def largest_share(self, ranks: int, hashed: bool) -> float:
        """Returns the key share of the rank that owns most keys; 1 / N without keys."""
        self._merge()
        if not len(self._kept):
            return 1 / ranks
        owned = np.bincount(owners_of(self._kept, ranks, hashed), minlength=ranks)
        return float(owned.max()) / len(self._kept)

    def _below(self, keys: Ints) -> Ints:
        if not self._halvings:
            return keys
        hashes = mix64(keys.astype(np.uint64))
        return keys[hashes < np.uint64(1 << (64 - self._halvings))]

    def _merge(self) -> None:
        if not self._pieces:
            return
        self._kept = np.unique(np.concatenate([self._kept, *self._pieces]))
        self._pieces, self._waiting = [], 0
        while len(self._kept) > _KEPT:
            self._halvings += 1
            self._kept = self._below(self._kept)
