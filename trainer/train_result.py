"""The result of a training run."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hotrow.trainer.checkpoint.directory import Best
from hotrow.trainer.metrics import Quality
from hotrow.trainer.run_directory import finite_or_none
from hotrow.trainer.table_metrics import Metrics


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The result of a training run.

    Attributes:
        run_dir: the run directory.
        steps: number of steps, including those before a resumption and those of the run that it
            started from.
        samples_per_second: rows trained a second by this call, without validation, checkpoints and
            the first step; NaN if it trained less than two steps.
        train: progressive quality of the last epoch: each batch is scored before training on it.
        valid: quality on the validation file at the end; None without one.
        rows: number of rows of each table.
        tables: metrics of each table with admission, expiry or a cache; see `watched_tables`.
        ranks: number of training processes.
        stages: metrics of `stages_of_all` by stage; empty for one rank.
        best: the best checkpoint, if the run keeps one.
        first_step: the step of the other run from which it started; 0: it started from nothing.
    """

    run_dir: Path
    steps: int
    samples_per_second: float
    train: Quality
    valid: Quality | None
    rows: dict[str, int]
    tables: dict[str, Metrics]
    ranks: int = 1
    stages: dict[str, Metrics] = field(default_factory=dict)
    best: Best | None = None
    first_step: int = 0

    @property
    def valid_auc(self) -> float:
        """AUC on the validation file; NaN without one."""
        return self.valid.auc if self.valid else math.nan

    @property
    def valid_logloss(self) -> float:
        """Logloss on the validation file; NaN without one."""
        return self.valid.logloss if self.valid else math.nan

    def as_dict(self) -> dict[str, Any]:
        """Returns the metrics as JSON values, null for NaN."""
        metrics: dict[str, Any] = {
            "run_dir": str(self.run_dir),
            "steps": self.steps,
            "first_step": self.first_step,
            "samples_per_second": self.samples_per_second,
            "train_auc": self.train.auc,
            "train_logloss": self.train.logloss,
            "valid_auc": self.valid_auc,
            "valid_logloss": self.valid_logloss,
            "best": None if self.best is None else asdict(self.best),
            "rows": self.rows,
            "tables": {
                name: {key: finite_or_none(value) for key, value in metrics.items()}
                for name, metrics in self.tables.items()
            },
            "ranks": self.ranks,
            "stages": self.stages,
        }
        return {key: finite_or_none(value) for key, value in metrics.items()}
