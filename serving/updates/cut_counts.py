"""Metrics of the cuts that versions show."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from hotrow.serving.monitoring.metrics import Family, Kind

_LABELS = ("model_name", "version")


@dataclass
class _Shown:
    """A version's state: version of its rows, step of training, and how its store is.

    Attributes:
        silent: the store cannot be followed.
        lost: the store has lost some of what is shown.
    """

    version: int = 0
    step: int = 0
    silent: bool = False
    lost: bool = False


class CutCounts:
    """Counts of cuts by model and version; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = Family("hotrow_cuts_taken_total", Kind.COUNTER, _LABELS)
        self._rewinds = Family("hotrow_store_rewinds_total", Kind.COUNTER, _LABELS)
        self._shown: dict[tuple[str, str], _Shown] = {}

    def show(self, model: str, version: int, rows: int, step: int) -> None:
        """Records what a version shows from now on.

        Args:
            model: its name.
            version: its number.
            rows: version of its rows.
            step: of the training.
        """
        with self._lock:
            shown = self._of(model, version)
            shown.version, shown.step = rows, step

    def count_taken(self, model: str, version: int) -> None:
        """Counts a cut that a version took while it served."""
        with self._lock:
            self._taken.add((model, str(version)))

    def count_rewind(self, model: str, version: int) -> None:
        """Counts that the store of a version went back in time."""
        with self._lock:
            self._rewinds.add((model, str(version)))

    def set_silent(self, model: str, version: int, silent: bool) -> None:
        """Records whether a version cannot receive cuts now."""
        with self._lock:
            self._of(model, version).silent = silent

    def set_lost(self, model: str, version: int, lost: bool) -> None:
        """Records whether the store has lost some of what a version shows."""
        with self._lock:
            self._of(model, version).lost = lost

    def without_store(self) -> dict[str, list[str]]:
        """Returns models that cannot follow their store, and those that it does not confirm.

        Either list is absent if it is empty.
        """
        with self._lock:
            items = list(self._shown.items())
        silent = sorted({model for (model, _), shown in items if shown.silent})
        lost = sorted({model for (model, _), shown in items if shown.lost})
        named = {"models_without_their_store": silent, "models_ahead_of_their_store": lost}
        return {name: models for name, models in named.items() if models}

    def forget(self, model: str, version: int) -> None:
        """Removes the metrics of a version that is unloaded."""
        with self._lock:
            self._shown.pop((model, str(version)), None)

    def families(self) -> list[Family]:
        """Returns all metrics."""
        versions = Family("hotrow_cut_version", Kind.GAUGE, _LABELS)
        steps = Family("hotrow_cut_step", Kind.GAUGE, _LABELS)
        stale = Family("hotrow_cuts_are_stale", Kind.GAUGE, _LABELS)
        behind = Family("hotrow_store_is_behind", Kind.GAUGE, _LABELS)
        rewinds = Family(self._rewinds.name, Kind.COUNTER, _LABELS)
        with self._lock:
            for labels, shown in self._shown.items():
                versions.add(labels, shown.version)
                steps.add(labels, shown.step)
                stale.add(labels, shown.silent or shown.lost)
                behind.add(labels, shown.lost)
                rewinds.add(labels, 0)
            taken = Family(self._taken.name, Kind.COUNTER, _LABELS)
            taken.merge(self._taken.cells)
            rewinds.merge(self._rewinds.cells)
        return [versions, steps, stale, behind, taken, rewinds]

    def _of(self, model: str, version: int) -> _Shown:
        return self._shown.setdefault((model, str(version)), _Shown())
