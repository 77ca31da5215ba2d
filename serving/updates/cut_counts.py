"""Metrics of the cuts that versions show."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from hotrow.serving.monitoring.metrics import Family, Kind
from hotrow.serving.wire.status import RequestError

_LABELS = ("model_name", "version")


@dataclass
class _Shown:
    """A version's state: version of its rows, step of training, whether rows may be old.

    `refused` is why the newest cut is not taken; "": it is.
    """

    version: int = 0
    step: int = 0
    stale: bool = False
    refused: str = ""


class CutCounts:
    """Counts of cuts by model and version; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = Family("hotrow_cuts_taken_total", Kind.COUNTER, _LABELS)
        self._failed = Family("hotrow_cut_failures_total", Kind.COUNTER, (*_LABELS, "code"))
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

    def set_stale(self, model: str, version: int, stale: bool) -> None:
        """Records whether a version cannot receive cuts now."""
        with self._lock:
            self._of(model, version).stale = stale

    def refuse(self, model: str, version: int, error: RequestError) -> None:
        """Counts a failed attempt to take the newest cut; it is refused until `accept`."""
        with self._lock:
            self._failed.add((model, str(version), error.code.name))
            self._of(model, version).refused = str(error)

    def accept(self, model: str, version: int) -> None:
        """Records that a version shows the newest cut."""
        with self._lock:
            self._of(model, version).refused = ""

    def stale_models(self) -> list[str]:
        """Returns the models of which a version cannot follow its store now."""
        with self._lock:
            return sorted({model for (model, _), shown in self._shown.items() if shown.stale})

    def forget(self, model: str, version: int) -> None:
        """Removes the metrics of a version that is unloaded."""
        with self._lock:
            self._shown.pop((model, str(version)), None)

    def families(self) -> list[Family]:
        """Returns all metrics."""
        versions = Family("hotrow_cut_version", Kind.GAUGE, _LABELS)
        steps = Family("hotrow_cut_step", Kind.GAUGE, _LABELS)
        stale = Family("hotrow_cuts_are_stale", Kind.GAUGE, _LABELS)
        refused = Family("hotrow_cut_is_refused", Kind.GAUGE, _LABELS)
        with self._lock:
            for labels, shown in self._shown.items():
                versions.add(labels, shown.version)
                steps.add(labels, shown.step)
                stale.add(labels, shown.stale)
                refused.add(labels, bool(shown.refused))
            taken = Family(self._taken.name, Kind.COUNTER, _LABELS)
            taken.merge(self._taken.cells)
            failed = Family(self._failed.name, Kind.COUNTER, self._failed.label_names)
            failed.merge(self._failed.cells)
        return [versions, steps, stale, refused, taken, failed]

    def _of(self, model: str, version: int) -> _Shown:
        return self._shown.setdefault((model, str(version)), _Shown())
