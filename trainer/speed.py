"""Measures the rows a second of a training loop."""

from __future__ import annotations

import math
import time


class Speed:
    """Rows a second from batch to batch, including reading.

    It excludes the first step, which traces and compiles, and the time before `restart`.
    """

    def __init__(self) -> None:
        """Starts the clock."""
        self._warm = False
        self._samples = 0
        self._seconds = 0.0
        self._mark = time.perf_counter()

    def restart(self) -> None:
        """Excludes the time since the last lap."""
        self._mark = time.perf_counter()

    def lap(self, samples: int) -> None:
        """Counts a step of `samples` rows."""
        now = time.perf_counter()
        if self._warm:
            self._samples += samples
            self._seconds += now - self._mark
        self._warm, self._mark = True, now

    def samples_per_second(self) -> float:
        """Returns the rate so far; NaN before the second step."""
        return self._samples / self._seconds if self._seconds else math.nan
