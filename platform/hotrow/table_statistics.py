"""Statistics of a table's rows: skew, ages, norms, collected batch by batch.

Memory does not grow with the number of rows. N: rows of a batch. D: weights of a row.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.lookup_counts import LookupCounts, octave

SKEW_PERCENTS = (1, 10)
NORM_PARTS = 8
"""Bins of equal ratio in each octave of norms."""

_AGE_BINS = 33
_LOWEST_PLACE = -160 * NORM_PARTS  # below float32's smallest number
_NORM_BINS = NORM_PARTS * 340


@dataclass(frozen=True)
class Bin:
    """Rows whose value is in [low, high)."""

    low: float
    high: float
    rows: int


class TableStatistics:
    """The statistics of one table.

    Attributes:
        step: the table's step; ages are relative to it.
        rows: number of rows added.
        not_finite: rows with a NaN or an infinity among weights and state; they have no norm.
        counts: lookups of the rows.
        norm_min, norm_max: range of the L2 norms; None without finite rows.
    """

    def __init__(self, step: int) -> None:
        """Starts without rows."""
        self.step = step
        self.rows = 0
        self.not_finite = 0
        self.counts = LookupCounts()
        self.norm_min: float | None = None
        self.norm_max: float | None = None
        self._age_sum = 0
        self._ages = np.zeros(_AGE_BINS, np.int64)
        self._norm_sum = 0.0
        self._zero_norms = 0
        self._norms = np.zeros(_NORM_BINS, np.int64)

    def add(
        self,
        weights: npt.NDArray[np.float32],
        clocks: npt.NDArray[np.uint32],
        counts: npt.NDArray[np.uint32],
        finite: npt.NDArray[np.bool_],
    ) -> None:
        """Adds rows; each row may be added only once.

        Args:
            weights: float32 [N, D].
            clocks: uint32 [N], the step of each row's last update.
            counts: uint32 [N], lookups.
            finite: bool [N]; false where weights or state hold a NaN or an infinity.
        """
        self.rows += len(clocks)
        self.counts.add(counts)
        # A row that was created after the last step has a clock beyond it.
        ages = np.maximum(self.step - clocks.astype(np.int64), 0)
        self._age_sum += int(ages.sum())
        self._ages += np.bincount(octave(ages), minlength=_AGE_BINS)
        self.not_finite += int((~finite).sum())
        self._add_norms(weights if finite.all() else weights[finite])

    def _add_norms(self, weights: npt.NDArray[np.float32]) -> None:
        if not len(weights):
            return
        wide = weights.astype(np.float64)  # squares of float32 may overflow
        norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))
        least, greatest = float(norms.min()), float(norms.max())
        self.norm_min = least if self.norm_min is None else min(self.norm_min, least)
        self.norm_max = greatest if self.norm_max is None else max(self.norm_max, greatest)
        self._norm_sum += float(norms.sum())
        norms = norms[norms > 0]
        self._zero_norms += len(weights) - len(norms)
        places = np.floor(np.log2(norms) * NORM_PARTS).astype(np.int64) - _LOWEST_PLACE
        self._norms += np.bincount(places, minlength=_NORM_BINS)

    @property
    def age_mean(self) -> float | None:
        """Mean of step - clock; None without rows."""
        return self._age_sum / self.rows if self.rows else None

    @property
    def norm_mean(self) -> float | None:
        """Mean of the L2 norms; None without finite rows."""
        finite = self.rows - self.not_finite
        return self._norm_sum / finite if finite else None

    def ages(self) -> list[Bin]:
        """Returns the rows by step - clock: 0, 1, 2 and 3, 4 to 7, and so on, to the last used."""
        return _octave_bins(self._ages)

    def lookups(self) -> list[Bin]:
        """Returns the rows by their lookups: 0, 1, 2 and 3, 4 to 7, and so on, to the last used."""
        return _octave_bins(self.counts.octaves())

    def norms(self) -> list[Bin]:
        """Returns the finite rows by L2 norm: `NORM_PARTS` bins an octave, without empty ones.

        Rows of norm 0 are in the bin [0, 0].
        """
        bins = [Bin(0.0, 0.0, self._zero_norms)] if self._zero_norms else []
        for place in np.flatnonzero(self._norms):
            low, high = (norm_boundary(int(place) + _LOWEST_PLACE + i) for i in (0, 1))
            bins.append(Bin(low, high, int(self._norms[place])))
        return bins

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON types."""
        return {
            "lookups": self.counts.lookups,
            "skew": {f"top_{p}_percent": self.counts.share_of_top(p) for p in SKEW_PERCENTS},
            "never_updated": self.counts.unused,
            "not_finite": self.not_finite,
            "lookups_a_row": {"histogram": [asdict(b) for b in self.lookups()]},
            "age": {"mean": self.age_mean, "histogram": [asdict(b) for b in self.ages()]},
            "norm": {
                "min": self.norm_min,
                "mean": self.norm_mean,
                "max": self.norm_max,
                "histogram": [asdict(b) for b in self.norms()],
            },
        }


def norm_boundary(place: int) -> float:
    """Returns the lowest norm of bin `place`: 1 for 0, 2 for `NORM_PARTS`."""
    return float(2.0 ** (place / NORM_PARTS))


def _octave_bins(rows: npt.NDArray[np.int64]) -> list[Bin]:
    used = np.flatnonzero(rows)
    last = int(used[-1]) if len(used) else -1
    return [Bin(2 ** (i - 1) if i else 0, 2**i, int(rows[i])) for i in range(last + 1)]
