"""The checkpoint of another run from which a run starts, and its record in the new run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hotrow.errors import DataLossError, FailedPreconditionError, NotFoundError
from hotrow.trainer.checkpoint import CheckpointDirectory
from hotrow.trainer.checkpoint.stored import StoredCheckpoint, name_of, open_chain, step_of
from hotrow.trainer.run_directory import CHECKPOINTS, SOURCE, read_config


@dataclass(frozen=True)
class SourceRun:
    """A checkpoint of another run.

    Attributes:
        run: the directory of that run, absolute.
        step: step of the checkpoint.
        seal: seal of its manifest.
        force: whether to drop parts that do not fit.
    """

    run: str
    step: int
    seal: str
    force: bool = False

    @property
    def checkpoint(self) -> Path:
        """The directory of the checkpoint."""
        return Path(self.run) / CHECKPOINTS / name_of(self.step)

    def open(self, thorough: bool) -> list[StoredCheckpoint]:
        """Returns the checkpoint after those that it builds on.

        Args:
            thorough: compare checksums of files.

        Raises:
            DataLossError: the checkpoint is damaged.
            FailedPreconditionError: the checkpoint no longer exists, or another one is in its
                place.
        """
        if not self.checkpoint.exists():
            raise FailedPreconditionError(
                f"{self.checkpoint}, which this run starts from, is gone; start a new run"
            )
        chain = open_chain(self.checkpoint, thorough=thorough)
        if chain[-1].seal != self.seal:
            raise FailedPreconditionError(
                f"{self.checkpoint} is another checkpoint than the one that this run started from; "
                "start a new run"
            )
        return chain

    def as_json(self) -> dict[str, Any]:
        """Returns JSON types."""
        return asdict(self)


def find_source(path: Path, force: bool, report: Any) -> SourceRun:
    """Returns the checkpoint that a run starts from: a run's best one, or its newest undamaged one.

    The best one counts where the run keeps one; see `CheckpointDirectory.best`.

    Args:
        path: a run directory, or one checkpoint of it.
        force: whether to drop parts that do not fit.
        report: called with a line for each damaged checkpoint that is skipped.

    Raises:
        NotFoundError: the directory holds no run.
        FailedPreconditionError: the run has no checkpoint yet.
        DataLossError: the checkpoint, or every one, is damaged.
    """
    path = path.resolve()
    step = step_of(path.name)
    run = path if step is None else path.parent.parent
    if step is not None and not path.exists():
        raise NotFoundError(f"--from: no checkpoint {path}; give the directory of a run")
    config = read_config(run)
    checkpoints = CheckpointDirectory(run / CHECKPOINTS, config.checkpoint.keep)
    chain = open_chain(path) if step is not None else checkpoints.chosen(report)
    if not chain:
        raise FailedPreconditionError(
            f"--from: {run} has no checkpoint yet; wait for its first one, or start without --from"
        )
    newest = chain[-1]
    return SourceRun(str(run), newest.facts["position"]["step"], newest.seal, force)


def read_source(run_dir: Path) -> SourceRun | None:
    """Returns the checkpoint that a run started from; None: it started from nothing.

    Raises:
        DataLossError: the record is damaged.
    """
    path = run_dir / SOURCE
    if not path.exists():
        return None
    try:
        return SourceRun(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as err:
        raise DataLossError(f"{path} is damaged: {err}") from err
