"""Test-then-train metrics: each event is scored before the model is trained on it."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotrow.trainer.metrics import BinaryMetrics, Quality

Floats = npt.NDArray[np.float32]

EXACT_EVENTS = 100_000
"""Beyond that, the AUC is of a histogram (`StreamingAuc`)."""
_BINS = 2**16
"""Of that histogram: 1 MiB, which a stream fills soon; the AUC is off by less than 1e-3."""


@dataclass(frozen=True)
class Progress:
    """Metrics of one model on a stream.

    Attributes:
        window: of the last complete window; None: none is complete.
        total: since the process started.
    """

    window: Quality | None
    total: Quality


class ProgressiveMetrics:
    """AUC, logloss and calibration by window of event time, and since the process started.

    A window ends with the first event of a later one. Events of an earlier window that come late
    count in the present one.

    Args:
        window_seconds: length of a window.
    """

    def __init__(self, window_seconds: float) -> None:
        self._seconds = window_seconds
        self._lock = threading.Lock()
        self._number: int | None = None
        self._window = BinaryMetrics(EXACT_EVENTS, _BINS)
        self._events = 0
        self._last: Quality | None = None
        self._total = BinaryMetrics(EXACT_EVENTS, _BINS)

    def add(
        self, labels: Floats, logits: Floats, weights: Floats | None, newest: float
    ) -> Quality | None:
        """Adds a batch; returns the metrics of a window that it ends, or None.

        Args:
            labels: float32 [n].
            logits: float32 [n], from before the update.
            weights: float32 [n]; None: each event weighs 1.
            newest: time of the newest event of the stream, Unix seconds; NaN: not known.
        """
        with self._lock:
            ended = self._end_window(newest)
            self._window.update(labels, logits, weights)
            self._total.update(labels, logits, weights)
            self._events += len(labels)
            return ended

    def progress(self) -> Progress:
        """Returns the metrics so far; any thread may call it."""
        with self._lock:
            return Progress(self._last, self._total.result())

    def _end_window(self, newest: float) -> Quality | None:
        if math.isnan(newest):
            return None
        number, before = int(newest // self._seconds), self._number
        self._number = number if before is None else max(number, before)
        if before is None or number <= before:
            return None
        ended = self._window.result() if self._events else None
        self._last = ended or self._last
        self._window, self._events = BinaryMetrics(EXACT_EVENTS, _BINS), 0
        return ended
