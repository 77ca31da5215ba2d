"""Durations by bucket, for the status and the page of metrics."""

from __future__ import annotations

import threading
from bisect import bisect_left

from hotrow.protos import online_pb2

_BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 3, 5, 10, 30, 60, 300)


class SecondsHistogram:
    """Counts durations; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets = [0] * (len(_BOUNDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Adds a duration; a negative one, of clocks that differ, counts as 0."""
        seconds = max(0.0, seconds)
        with self._lock:
            self._buckets[bisect_left(_BOUNDS, seconds)] += 1
            self._sum += seconds

    def message(self) -> online_pb2.Histogram:
        """Returns the counts so far."""
        with self._lock:
            return online_pb2.Histogram(bounds=_BOUNDS, buckets=self._buckets, sum=self._sum)
