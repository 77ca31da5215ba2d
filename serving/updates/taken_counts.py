"""Metrics of the cuts that versions took while they served: their lag, size and gaps."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hotrow.serving.monitoring.metrics import Family, Kind

if TYPE_CHECKING:
    from hotrow.store.cuts import CutRecord

_LABELS = ("model_name", "version")
# Seconds; close where goals for the lag are (0.15 s, 0.5 s).
_BOUNDS: tuple[float, ...] = (0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75)
_BOUNDS += (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


class TakenCounts:
    """Counts by model and version; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cuts = Family("hotrow_cuts_taken_total", Kind.COUNTER, _LABELS)
        self._coalesced = Family("hotrow_cuts_coalesced_total", Kind.COUNTER, _LABELS)
        self._gaps = Family("hotrow_cut_gaps_total", Kind.COUNTER, _LABELS)
        self._rows = Family("hotrow_cut_rows_taken_total", Kind.COUNTER, _LABELS)
        self._bytes = Family("hotrow_cut_bytes_taken_total", Kind.COUNTER, _LABELS)
        self._visible = Family("hotrow_cut_visible_seconds", Kind.HISTOGRAM, _LABELS, _BOUNDS)
        self._events = Family("hotrow_event_visible_seconds", Kind.HISTOGRAM, _LABELS, _BOUNDS)

    def take(
        self,
        model: str,
        version: int,
        cuts: Sequence[CutRecord],
        *,
        missed: bool,
        shown_ms: float | None,
    ) -> None:
        """Counts cuts that a version shows from now on, all of them at once.

        Args:
            model: its name.
            version: its number.
            cuts: those that the store still had.
            missed: whether others were forgotten before.
            shown_ms: when all new answers showed them, by the store's clock; None: not known.
        """
        labels = (model, str(version))
        with self._lock:
            self._cuts.add(labels)
            self._coalesced.add(labels, max(0, len(cuts) - 1))
            self._gaps.add(labels, missed)
            self._rows.add(labels, sum(cut.rows + cut.removed for cut in cuts))
            self._bytes.add(labels, sum(cut.bytes for cut in cuts))
            if shown_ms is None:
                return
            for cut in cuts:
                for family, since_ms in (
                    (self._visible, cut.committed_ms),
                    (self._events, cut.event_ms),
                ):
                    if since_ms:
                        # Events have times of other clocks, which may be ahead of the store's.
                        family.add(labels, max(0.0, shown_ms - since_ms) / 1000)

    def families(self) -> list[Family]:
        """Returns a copy of all metrics."""
        own = (self._cuts, self._coalesced, self._gaps, self._rows, self._bytes)
        with self._lock:
            return [_copy(family) for family in (*own, self._visible, self._events)]


def _copy(family: Family) -> Family:
    copied = Family(family.name, family.kind, family.label_names, family.bounds)
    copied.merge(family.cells)
    return copied
