"""What a cut must keep to before it is committed, and why publishing has stopped.

N rows, D weights.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotrow.norms import GateError

_REFERENCE_SECONDS = 600.0
"""How long a good cut's canary scores are compared with later ones."""


@dataclass(frozen=True)
class Limits:
    """Bounds of the gates.

    Attributes:
        norm_ratio: how many times a norm may grow from one cut to the next; None: any.
        canary_change: how much the canary's mean score may change; None: any.
        canary_auc_drop: how far its AUC may fall below the best of the last good cuts; None: any.
    """

    norm_ratio: float | None
    canary_change: float | None
    canary_auc_drop: float | None


@dataclass(frozen=True, eq=False)
class CanaryScores:
    """Scores of the canary rows by the trainer, at the step of a cut.

    Attributes:
        scores: float32 [N], probabilities.
        mean: their mean.
        auc: their AUC; NaN if the rows have no labels of both kinds.
    """

    scores: npt.NDArray[np.float32]
    mean: float
    auc: float


def check_canary(before: CanaryScores | None, now: CanaryScores, limits: Limits) -> None:
    """Compares the scores of the canary rows with those of the last good cut.

    Raises:
        GateError: they differ too much, or are not finite.
    """
    if not np.isfinite(now.scores).all():
        raise GateError("canary: a score is not finite")
    if before is None:
        return
    change = abs(now.mean - before.mean)
    if limits.canary_change is not None and change > limits.canary_change:
        raise GateError(
            f"canary: the mean score is {now.mean:.4f}, in the last good cut {before.mean:.4f}; it "
            f"may change by {limits.canary_change:g} (online.canary_change)"
        )
    drop = before.auc - now.auc
    if limits.canary_auc_drop is not None and drop > limits.canary_auc_drop:
        raise GateError(
            f"canary: the AUC is {now.auc:.4f}, in the last good cut {before.auc:.4f}; it may fall "
            f"by {limits.canary_auc_drop:g} (online.canary_auc_drop)"
        )


class GoodScores:
    """The canary's scores of the good cuts of the last ten minutes."""

    def __init__(self) -> None:
        self._known: deque[tuple[float, CanaryScores]] = deque()

    def add(self, scores: CanaryScores) -> None:
        """Adds those of a cut that was committed."""
        now = time.monotonic()
        self._known.append((now, scores))
        while self._known[0][0] < now - _REFERENCE_SECONDS:
            self._known.popleft()

    def check(self, scores: CanaryScores, limits: Limits) -> None:
        """Compares scores with the oldest known ones, and with those of the best AUC.

        Raises:
            GateError: they differ too much, or are not finite.
        """
        known = [good for _, good in self._known]
        check_canary(known[0] if known else None, scores, limits)
        if known:
            check_canary(max(known, key=lambda good: good.auc), scores, limits)


class Gate:
    """Whether cuts may be published, and why not.

    Attributes:
        reason: why it is closed; "": it is open.
        since: when it closed, Unix seconds.
        closed_total: how often it closed.
        force: whether the next cut is published whatever the gates say.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.since = 0.0
        self.closed_total = 0
        self.force = False

    @property
    def is_closed(self) -> bool:
        """Whether no cut may be published."""
        return bool(self.reason)

    def close(self, reason: str) -> None:
        """Closes it; a closed gate keeps its first reason."""
        if not self.reason:
            self.reason, self.since = reason, time.time()
            self.closed_total += 1

    def open(self, force: bool) -> None:
        """Opens it."""
        self.reason, self.since, self.force = "", 0.0, force
