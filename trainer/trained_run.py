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
from hotrow.trainer.checkpoint.choice import checkpoint_of, restore_chosen
from hotrow.trainer.checkpoint.exported import note_exported
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
        checkpoint: the directory that it was restored from.
    """

    path: Path
    config: RunConfig
    model: Ranker
    position: Position
    lineage: Lineage
    checkpoint: Path


def _print_error(line: str) -> None:
    print(line, file=sys.stderr)


def load_run(
    run_dir: str | Path,
    report: Callable[[str], None] = _print_error,
    *,
    step: int | None = None,
    checkpoint: Path | None = None,
) -> TrainedRun:
    """Returns the model of a run's best, newest undamaged or given checkpoint; writes nothing.

    The best one counts where the run keeps one (`train.early_stopping`, `checkpoint.best`).

    Args:
        run_dir: the run directory.
        report: gets a line for each damaged checkpoint that is passed over.
        step: of the checkpoint to take in place of the newest.
        checkpoint: its directory in place of its step; it may be a copy elsewhere.

    Raises:
        NotFoundError: there is no run in the directory, or no checkpoint of the step.
        InvalidArgumentError: step and checkpoint are given, or what is given is no checkpoint.
        FailedPreconditionError: the run has no checkpoint yet, or the given one is of another
            configuration.
        DataLossError: every checkpoint is damaged, or the given one is.
    """
    path = Path(run_dir)
    config = read_config(path)
    checkpoints = CheckpointDirectory(path / CHECKPOINTS, config.checkpoint.keep)
    chosen = checkpoint_of(checkpoints, step, checkpoint)
    # Rows are read, not trained: a cache would be in the way, and its GPU is perhaps elsewhere.
    on_gpu = config.cache.device != "cpu"
    cache = CacheConfig() if on_gpu else config.cache
    model = build_model(config.model_copy(update={"cache": cache}))
    if chosen is not None:
        restored = restore_chosen(chosen, model, report)
    else:
        found = checkpoints.restore_newest(model, optimizer=None, report=report, prefer_best=True)
        if found is None:
            raise FailedPreconditionError(
                f"{path} has no checkpoint yet; train it first (platform train ... --run-dir "
                f"{path})"
            )
        restored, chosen = found, checkpoints.of_step(found.position.step)
    return TrainedRun(path, config, model, restored.position, restored.lineage, chosen)


def keep_exported(run: TrainedRun, report: Callable[[str], None] = _print_error) -> None:
    """Has the run keep a checkpoint that was exported, so that a full export can go back to it.

    Args:
        run: what was exported.
        report: gets a line if the run directory cannot be written.
    """
    checkpoints = run.path / CHECKPOINTS
    if run.checkpoint.resolve().parent != checkpoints.resolve():
        return  # a copy elsewhere, which the run does not remove
    try:
        note_exported(checkpoints, run.position.step)
    except OSError as err:
        report(
            f"{checkpoints} cannot be written ({err.strerror}): later training may remove the "
            f"exported checkpoint of step {run.position.step}; copy it to be able to go back"
        )
