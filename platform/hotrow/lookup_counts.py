"""The distribution of lookups over a table's rows: exact, without storing a number a row.

It stores the number of rows for each count. Rows with d distinct counts have d^2 / 2 lookups or
more, so there are at most sqrt(2 x lookups) distinct counts: 140,000 at 10^10 lookups, for any
number of rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SMALL = 1 << 16
_OCTAVES = 33


class LookupCounts:
    """The counts of all rows, as a number of rows for each count that occurs."""

    def __init__(self) -> None:
        """Starts without rows."""
        self._small = np.zeros(_SMALL, np.int64)  # rows of each count below _SMALL
        self._large = np.empty(0, np.uint32)  # larger counts, distinct and sorted,
        self._large_rows = np.empty(0, np.int64)  # and the rows of each

    def add(self, counts: npt.NDArray[np.uint32]) -> None:
        """Adds rows with these counts, uint32 [N]."""
        large = counts >= _SMALL
        self._small += np.bincount(counts[~large], minlength=_SMALL)
        values, rows = np.unique(counts[large], return_counts=True)
        if len(values):
            self._large, place = np.unique(
                np.concatenate([self._large, values]), return_inverse=True
            )
            both = np.concatenate([self._large_rows, rows])
            self._large_rows = np.zeros(len(self._large), np.int64)
            np.add.at(self._large_rows, place, both)

    @property
    def rows(self) -> int:
        """Rows added."""
        return int(self._small.sum() + self._large_rows.sum())

    @property
    def unused(self) -> int:
        """Rows whose count is 0."""
        return int(self._small[0])

    @property
    def lookups(self) -> int:
        """The sum of all counts."""
        values, rows = self._descending()
        return int((values * rows).sum())

    def share_of_top(self, percent: int) -> float | None:
        """Returns the share of all lookups that went to the most looked-up rows.

        The result is exact, except that a count stops at 2^32 - 1 and removed rows do not count.

        Args:
            percent: share of the rows, rounded up to a whole row.

        Returns:
            A number in [0, 1]; None without lookups.
        """
        values, rows = self._descending()
        lookups = int((values * rows).sum())
        if not lookups:
            return None
        left = (self.rows * percent + 99) // 100
        before = np.cumsum(rows) - rows
        taken = np.minimum(rows, np.maximum(left, before) - before)
        return int((values * taken).sum()) / lookups

    def octaves(self) -> npt.NDArray[np.int64]:
        """Returns int64 [33]: rows of count 0, of 1, of 2 and 3, of 4 to 7, and so on."""
        values, rows = self._descending()
        result = np.zeros(_OCTAVES, np.int64)
        np.add.at(result, octave(values), rows)
        return result

    def _descending(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Returns the counts that occur, the largest first, and the rows of each."""
        small = np.flatnonzero(self._small)
        values = np.concatenate([small, self._large.astype(np.int64)])[::-1]
        return values, np.concatenate([self._small[small], self._large_rows])[::-1]


def octave(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Returns 0 for 0, 1 for 1, 2 for 2 and 3, 3 for 4 to 7, and so on: the bits of each value."""
    return np.frexp(values.astype(np.float64))[1]
