"""Metrics of the cuts that versions show."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hotrow.serving.monitoring.metrics import Family, Kind
from hotrow.serving.updates.next_look import Cause
from hotrow.serving.updates.taken_counts import TakenCounts
from hotrow.serving.wire.status import RequestError

if TYPE_CHECKING:
    from hotrow.store.cuts import CutRecord

_LABELS = ("model_name", "version")


@dataclass
class _Shown:
    """A version's state.

    Attributes:
        version: of its rows.
        step: of training.
        silent: the store cannot be followed.
        lost: the store has lost some of what is shown.
        refused: why the newest cut is not taken; "": it is.
        unfolded: how many cuts are laid over the store's rows until readers let an exporter fold
            them.
        unfolded_bytes: of these.
        unfolded_since_ms: when the oldest of them was committed, by the store's clock; 0: none.
    """

    version: int = 0
    step: int = 0
    silent: bool = False
    lost: bool = False
    refused: str = ""
    unfolded: int = 0
    unfolded_bytes: int = 0
    unfolded_since_ms: int = 0


class CutCounts:
    """Counts of cuts by model and version; safe for several threads.

    Attributes:
        taken: of the cuts that versions took while they served.
    """

    def __init__(self) -> None:
        self.taken = TakenCounts()
        self._lock = threading.Lock()
        self._overruled = Family("hotrow_server_overruled_total", Kind.COUNTER, _LABELS)
        self._rewinds = Family("hotrow_store_rewinds_total", Kind.COUNTER, _LABELS)
        self._looks = Family("hotrow_cut_looks_total", Kind.COUNTER, (*_LABELS, "cause"))
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

    def count_overruled(self, model: str, version: int, times: int) -> None:
        """Counts how often more an exporter folded a cut without waiting for a version."""
        with self._lock:
            self._overruled.add((model, str(version)), times)

    def count_look(self, model: str, version: int, cause: Cause) -> None:
        """Counts a look of a version at its store."""
        with self._lock:
            self._looks.add((model, str(version), str(cause)))

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

    def set_unfolded(self, model: str, version: int, cuts: Sequence[CutRecord]) -> None:
        """Records the cuts of a version that wait to be folded, the oldest first."""
        with self._lock:
            shown = self._of(model, version)
            shown.unfolded = len(cuts)
            shown.unfolded_bytes = sum(cut.bytes for cut in cuts)
            shown.unfolded_since_ms = cuts[0].committed_ms if cuts else 0

    def refuse(self, model: str, version: int, error: RequestError) -> None:
        """Counts a failed attempt to take the newest cut; it is refused until `accept`."""
        with self._lock:
            self._failed.add((model, str(version), error.code.name))
            self._of(model, version).refused = str(error)

    def accept(self, model: str, version: int) -> None:
        """Records that a version shows the newest cut."""
        with self._lock:
            self._of(model, version).refused = ""

    def troubles(self) -> dict[str, Any]:
        """Returns what `/v1/health/ready` says about cuts; empty if all is well."""
        with self._lock:
            known = sorted(self._shown.items())
        silent = sorted({model for (model, _), shown in known if shown.silent})
        lost = sorted({model for (model, _), shown in known if shown.lost})
        refused = {model: shown.refused for (model, _), shown in known if shown.refused}
        troubles = {
            "models_without_their_store": silent,
            "models_ahead_of_their_store": lost,
            "models_without_their_newest_cut": refused,
        }
        return {name: models for name, models in troubles.items() if models}

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
        refused = Family("hotrow_cut_is_refused", Kind.GAUGE, _LABELS)
        unfolded = Family("hotrow_unfolded_cuts", Kind.GAUGE, _LABELS)
        sizes = Family("hotrow_unfolded_cut_bytes", Kind.GAUGE, _LABELS)
        ages = Family("hotrow_unfolded_cut_seconds", Kind.GAUGE, _LABELS)
        now_ms = time.time() * 1000
        with self._lock:
            for labels, shown in self._shown.items():
                versions.add(labels, shown.version)
                steps.add(labels, shown.step)
                stale.add(labels, shown.silent or shown.lost)
                behind.add(labels, shown.lost)
                rewinds.add(labels, 0)
                refused.add(labels, bool(shown.refused))
                unfolded.add(labels, shown.unfolded)
                sizes.add(labels, shown.unfolded_bytes)
                since = shown.unfolded_since_ms or now_ms
                ages.add(labels, max(0.0, now_ms - since) / 1000)
            overruled = Family(self._overruled.name, Kind.COUNTER, _LABELS)
            overruled.merge(self._overruled.cells)
            rewinds.merge(self._rewinds.cells)
            failed = Family(self._failed.name, Kind.COUNTER, self._failed.label_names)
            failed.merge(self._failed.cells)
            looks = Family(self._looks.name, Kind.COUNTER, self._looks.label_names)
            looks.merge(self._looks.cells)
        states = [versions, steps, stale, behind, refused, unfolded, sizes, ages]
        return [*states, rewinds, overruled, failed, looks, *self.taken.families()]

    def _of(self, model: str, version: int) -> _Shown:
        return self._shown.setdefault((model, str(version)), _Shown())
