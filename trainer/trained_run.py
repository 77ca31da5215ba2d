"""Loads the model of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hotrow.config import CacheConfig, RunConfig
from hotrow.errors import FailedPreconditionError
from hotrow.lineage import Lineage
from hotrow.ops.row_batch import Keys
from hotrow.trainer.checkpoint import CheckpointDirectory, Position
from hotrow.trainer.checkpoint.choice import checkpoint_of, restore_chosen
from hotrow.trainer.checkpoint.exported import note_exported
from hotrow.trainer.checkpoint.exported_keys import keys_of_export
from hotrow.trainer.models import Ranker, build_model
from hotrow.trainer.run_directory import CHECKPOINTS, read_config


@dataclass(frozen=True)
class TrainedRun:
    """A trained model.

    Attributes:
        path: the run directory.
        config: the run's resolved configuration.
        model: the model, with the tables and weights of the checkpoint.
        position: position of training at the checkpoint.
        lineage: the starts of training that led to it.
        checkpoint: the directory from which it was restored.
    """

    path: Path
    config: RunConfig
    model: Ranker
    position: Position
    lineage: Lineage
    checkpoint: Path

    def keys_before(self, table: str, clock: int) -> Keys | None:
        """Returns the keys int64 [N] of a table at a clock, if a checkpoint of it was exported."""
        return keys_of_export(self.path / CHECKPOINTS, self.lineage, table, clock)


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
        report: called with a line for each damaged checkpoint that is skipped.
        step: step of the checkpoint to load instead.
        checkpoint: its directory, instead of its step; it may be a copy elsewhere.

    Raises:
        NotFoundError: the directory holds no run, or no checkpoint of the step.
        InvalidArgumentError: both step and checkpoint are given, or `checkpoint` is no checkpoint.
        FailedPreconditionError: the run has no checkpoint yet, or the given one has another
            configuration.
        DataLossError: every checkpoint is damaged, or the given one is.
    """
    path = Path(run_dir)
    config = read_config(path)
    checkpoints = CheckpointDirectory(path / CHECKPOINTS, config.checkpoint.keep)
    chosen = checkpoint_of(checkpoints, step, checkpoint)
    # Rows are only read: a cache would not help, and its GPU may not exist here.
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
    """Makes the run keep an exported checkpoint, so that a full export can use it again.

    Args:
        run: the exported model.
        report: called with a line if the run directory cannot be written.
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
