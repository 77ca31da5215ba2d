"""Restores a checkpoint that the user names instead of the newest one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hotrow.errors import InvalidArgumentError, NotFoundError
from hotrow.trainer.checkpoint.directory import CheckpointDirectory
from hotrow.trainer.checkpoint.restore import Restored, restore
from hotrow.trainer.checkpoint.stored import open_chain, step_of

if TYPE_CHECKING:
    from hotrow.trainer.models import Ranker


def checkpoint_of(run: CheckpointDirectory, step: int | None, path: Path | None) -> Path | None:
    """Returns the checkpoint named by its step or its directory; None: neither is given.

    Args:
        run: the checkpoints of the run.
        step: step of one of them.
        path: a checkpoint directory. A copy elsewhere needs the checkpoints that it builds on
            beside it.

    Raises:
        InvalidArgumentError: both are given, or the directory is no checkpoint.
        NotFoundError: the run has no checkpoint of that step.
    """
    if step is not None and path is not None:
        raise InvalidArgumentError(f"--step {step} with --checkpoint {path}: give one of the two")
    if step is not None:
        steps = run.steps()
        if step not in steps:
            there = ", ".join(map(str, steps)) or "none"
            raise NotFoundError(
                f"--step {step}: {run.path} has no checkpoint of this step; it has: {there}"
            )
        return run.of_step(step)
    if path is not None and (step_of(path.resolve().name) is None or not path.is_dir()):
        there = ", ".join(str(run.of_step(known)) for known in run.steps()) or "none"
        raise InvalidArgumentError(
            f"--checkpoint {path}: is no directory step-...; checkpoints of the run: {there}"
        )
    return path


def restore_chosen(checkpoint: Path, model: Ranker, report: Callable[[str], None]) -> Restored:
    """Restores one checkpoint without its optimizer; tries no other one if it is damaged.

    Args:
        checkpoint: its directory.
        model: made from the run's configuration; its tables and weights are replaced.
        report: called with a line about state that cannot be restored.

    Raises:
        DataLossError: the checkpoint is damaged.
        FailedPreconditionError: it has another configuration or format.
    """
    return restore(open_chain(checkpoint.resolve()), model, None, report)
