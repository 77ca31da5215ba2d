"""Compares the canary scores of servers with those of the trainer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from hotrow.errors import HotrowError
from hotrow.trainer.online.publishing.gate import CanaryScores, Gate
from hotrow.trainer.online.trainer_control import TrainerControl

ServerScores = Callable[[str], npt.NDArray[np.floating]]
"""Called with the gRPC address of a server; returns its scores of the canary rows, float [N]."""

_LOOK_SECONDS = 5.0
_CUTS = 64
"""A server may show any of so many newest cuts."""


class CanaryServers:
    """Asks servers again and again, in a thread; one that scores otherwise closes the gate.

    Args:
        addresses: of the servers.
        scores_of: asks one.
        tolerance: largest difference of a score.
        gate: of the cuts.
        control: gets the worst difference, and what is wrong.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        scores_of: ServerScores,
        tolerance: float,
        gate: Gate,
        control: TrainerControl,
    ) -> None:
        self._addresses = addresses
        self._scores_of = scores_of
        self._tolerance = tolerance
        self._gate = gate
        self._control = control
        self._known: deque[CanaryScores] = deque(maxlen=_CUTS)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canary", daemon=True)
        self._thread.start()

    def add(self, scores: CanaryScores | None) -> None:
        """Adds the trainer's scores of a cut that was committed."""
        if scores is not None:
            self._known.append(scores)

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._thread.join()

    def look(self) -> None:
        """Asks each server once."""
        known = list(self._known)
        if not known:
            return
        worst, troubles = 0.0, []
        for address in self._addresses:
            try:
                served = np.asarray(self._scores_of(address), np.float64)
            except HotrowError as err:
                troubles.append(f"{address}: {err}")
                continue
            difference = min(_difference(served, scores) for scores in known)
            worst = max(worst, difference)
            if difference > self._tolerance:
                self._gate.close(
                    f"canary: server {address} scores a row {difference:.2g} away from the trainer "
                    f"in each of the last {len(known)} cuts; at most {self._tolerance:g} is "
                    "expected (online.canary_tolerance)"
                )
        self._control.note_servers(worst, "; ".join(troubles))

    def _run(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            self.look()


def _difference(served: npt.NDArray[np.float64], scores: CanaryScores) -> float:
    if served.shape != scores.scores.shape or not np.isfinite(served).all():
        return np.inf
    return float(np.abs(served - scores.scores).max())
