"""Loads what a run has trained."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hotrow.config import CacheConfig, RunConfig
from hotrow.errors import FailedPreconditionError
from hotrow.lineage import Lineage
from hotrow.trainer.checkpoint import CheckpointDirectory, Position
from hotrow.trainer.models import Ranker, build_model
from hotrow.trainer.run_directory import CHECKPOINTS, read_config


@dataclass(frozen=True)
class TrainedRun:
    """A trained model.

    Attributes:
        path: the run directory.
        config: the run's configuration, as resolved.
        model: with the tables and weights of the checkpoint.
        position: how far training was.
        lineage: the starts of training behind it.
    """

    path: Path
    config: RunConfig
    model: Ranker
    position: Position
    lineage: Lineage


def _print_error(line: str) -> None:
    print(line, file=sys.stderr)


def load_run(run_dir: str | Path, report: Callable[[str], None] = _print_error) -> TrainedRun:
    """Returns the model of a run's best checkpoint, or its newest undamaged one; writes nothing.

    The best one counts where the run keeps one (`train.early_stopping`, `checkpoint.best`).

    Args:
        run_dir: the run directory.
        report: gets a line for each damaged checkpoint that is passed over.

    Raises:
        NotFoundError: there is no run in the directory.
        FailedPreconditionError: the run has no checkpoint yet.
        DataLossError: every checkpoint is damaged.
    """
    path = Path(run_dir)
    config = read_config(path)
    # Rows are read, not trained: a cache would be in the way, and its GPU is perhaps elsewhere.
    on_gpu = config.cache.device != "cpu"
    cache = CacheConfig() if on_gpu else config.cache
    model = build_model(config.model_copy(update={"cache": cache}))
    checkpoints = CheckpointDirectory(path / CHECKPOINTS, config.checkpoint.keep)
    restored = checkpoints.restore_newest(model, optimizer=None, report=report, prefer_best=True)
    if restored is None:
        raise FailedPreconditionError(
            f"{path} has no checkpoint yet; train it first (platform train ... --run-dir {path})"
        )
    return TrainedRun(path, config, model, restored.position, restored.lineage)
