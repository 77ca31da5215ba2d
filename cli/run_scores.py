"""Scores of a run's checkpoint, in this process: the model that was trained, before any export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hotrow.cli.predict import ScoringOptions
from hotrow.cli.quiet_start import import_tensorflow_quietly
from hotrow.trainer.data import open_data
from hotrow.trainer.data.batch import RawBatch
from hotrow.trainer.data.data_file import DataFile


class RunScores:
    """The model of a run's best or newest checkpoint, or of a chosen one; see `ScoreSource`."""

    def __init__(self, options: ScoringOptions, run_dir: Path) -> None:
        """Restores the checkpoint.

        Raises:
            HotrowError: there is no such checkpoint, or it is damaged.
        """
        import_tensorflow_quietly()
        from hotrow.trainer.train_step import make_forward
        from hotrow.trainer.trained_run import load_run

        self._options = options
        self._run = load_run(run_dir, step=options.step, checkpoint=options.checkpoint)
        self._forward = make_forward(self._run.model, self._run.config)
        step = self._run.position.step
        self.title = f"run          {run_dir}, step {step}"
        self.conditions: dict[str, Any] = {"run": str(run_dir), "step": step}
        self.doubts: dict[str, int] = {}

    def open(self, require_labels: bool) -> DataFile:
        """Returns the file as the run reads its own, except for the given options."""
        config = self._run.config
        data = self._options.data_config_of(config.data)
        return open_data(self._options.data, data, config.features, require_labels=require_labels)

    def score(self, batch: RawBatch) -> Any:
        """Returns the probabilities of rows, float32 [B]."""
        from hotrow.trainer.evaluation import predict_rows

        return predict_rows(self._forward, self._run.config, batch)
