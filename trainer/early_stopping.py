"""Tracks the best validation so far, and whether later ones still improve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.config import RunConfig
from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.trainer.checkpoint.directory import Best
from hotrow.trainer.metrics import Quality

METRICS = ("auc", "logloss")
"""Of validations; a higher AUC and a lower logloss are better."""

_STATE = "early_stopping"


class EarlyStopping:
    """Tracks the validations of a run. It does nothing for a run without a metric to track.

    A validation is better if its metric exceeds the best so far by more than `min_delta`. After
    `patience` validations in a row that are not better, training should stop.

    Attributes:
        best: the best validation; None: there was no validation yet.
    """

    def __init__(self, config: RunConfig) -> None:
        """Starts without a validation.

        Args:
            config: the run's configuration; `train.early_stopping` or `checkpoint.best` names the
                metric.
        """
        stopping = config.train.early_stopping
        self._metric = stopping.metric if stopping else config.checkpoint.best
        self._min_delta = stopping.min_delta if stopping else 0.0
        self._patience = stopping.patience if stopping else None
        self.best: Best | None = None
        self._step = -1  # of the last validation
        self._waited = 0  # validations since the best

    @property
    def is_enough(self) -> bool:
        """Whether the run should end."""
        return self._patience is not None and self._waited >= self._patience

    def observe(self, step: int, quality: Quality) -> bool:
        """Records a validation; returns whether it is the best so far.

        A step that was observed before does not count again.

        Raises:
            FailedPreconditionError: the metric is not defined.
        """
        if self._metric is None or step <= self._step:
            return False
        value = quality.auc if self._metric == "auc" else quality.logloss
        if math.isnan(value):
            raise FailedPreconditionError(
                f"{self._metric} of data.valid is not defined: all {quality.rows} labels are "
                "equal; choose the metric logloss, or another file"
            )
        sign = 1 if self._metric == "auc" else -1
        best = self.best
        is_better = best is None or sign * (value - best.value) > self._min_delta
        self._step = step
        self._waited = 0 if is_better else self._waited + 1
        if is_better:
            self.best = Best(step, self._metric, value)
        return is_better

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """Returns the state for `set_state`; empty without a metric."""
        if self._metric is None:
            return {}
        best = self.best or Best(-1, self._metric, 0.0)
        number = METRICS.index(self._metric)
        return {
            _STATE: np.array([number, best.step, best.value, self._step, self._waited], np.float64)
        }

    def set_state(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restores what `state` returned; starts new if that has another metric, or none.

        Raises:
            DataLossError: the state is damaged.
        """
        if self._metric is None or _STATE not in arrays:
            return
        values = arrays[_STATE]
        if values.dtype != np.float64 or values.shape != (5,):
            raise DataLossError("the state of early stopping is damaged")
        number, step, value, last, waited = values.tolist()
        if number != METRICS.index(self._metric):
            return
        self.best = None if step < 0 else Best(int(step), self._metric, value)
        self._step, self._waited = int(last), int(waited)
