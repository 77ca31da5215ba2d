"""Reads the contents of a run or a checkpoint from its files, without loading a model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from hotrow.config import RunConfig
from hotrow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    nearest,
)
from hotrow.inspection import InspectedTable, Inspection, TrainedTable
from hotrow.table_statistics import TableStatistics
from hotrow.trainer.checkpoint import CheckpointDirectory
from hotrow.trainer.checkpoint.rows import CheckpointRows
from hotrow.trainer.run_directory import CHECKPOINTS, read_config
from hotrow.trainer.source_run import read_source

_ATTEMPTS = 5


class Progress(Protocol):
    """Counts rows as they are read."""

    def add(self, rows: int) -> None:
        """Counts `rows` more."""


ShowProgress = Callable[[int], AbstractContextManager[Progress]]
"""Shows progress through so many rows."""


class _RemovedError(FailedPreconditionError):
    """The run, which is still training, removed the checkpoint during the read."""


def inspect_run(path: Path, only: Collection[str], show: ShowProgress) -> Inspection:
    """Reads the configuration of a run and every row of its newest undamaged checkpoint.

    The run may train meanwhile. If it removes the checkpoint, a newer one is read.

    Args:
        path: the run directory.
        only: the names of the tables to read; empty: all.
        show: shows progress.

    Raises:
        NotFoundError: the directory holds no run.
        FailedPreconditionError: the run has no checkpoint yet, or one of another format; or it
            removes checkpoints faster than they can be read.
        DataLossError: every checkpoint is damaged.
        InvalidArgumentError: the run has no table of a given name.
    """
    config = read_config(path)
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(_RemovedError):
            return _inspect_newest(path, config, only, show)
    raise FailedPreconditionError(
        f"{path}: {_ATTEMPTS} checkpoints were removed while they were read; raise "
        "checkpoint.keep, or try again when the run has ended"
    )


def _inspect_newest(
    path: Path, config: RunConfig, only: Collection[str], show: ShowProgress
) -> Inspection:
    checkpoints = CheckpointDirectory(path / CHECKPOINTS, config.checkpoint.keep)
    steps = checkpoints.steps()
    damaged: list[int] = []
    for step in reversed(steps):
        directory = checkpoints.of_step(step)
        try:
            rows = CheckpointRows(directory)
        except DataLossError as err:
            if not directory.exists():
                raise _RemovedError from err
            damaged.append(step)
            continue
        facts: dict[str, Any] = {
            "name": config.name,
            "model": config.model.arch,
            **_facts(rows),
            "checkpoints": len(steps),
            "damaged_checkpoints": damaged,
        }
        best, source = checkpoints.best(), read_source(path)
        if best is not None:
            facts["best_checkpoint"] = checkpoints.of_step(best.step).name
            facts[f"best_{best.metric}"] = best.value
        if source is not None:
            facts["started_from"] = str(source.checkpoint)
        return Inspection("run", str(path), facts, _tables(rows, only, show))
    if damaged:
        raise DataLossError(f"{path}: all {len(damaged)} checkpoints are damaged")
    raise FailedPreconditionError(f"{path} has no checkpoint yet; train it first")


def inspect_checkpoint(path: Path, only: Collection[str], show: ShowProgress) -> Inspection:
    """Reads every row of one checkpoint.

    Args:
        path: `step-<8 digits>`; the checkpoints that it builds on are beside it.
        only: the names of the tables to read; empty: all.
        show: shows progress.

    Raises:
        DataLossError: the checkpoint is damaged, or one that it builds on.
        FailedPreconditionError: the checkpoint has another format.
        InvalidArgumentError: the checkpoint has no table of a given name.
    """
    rows = CheckpointRows(path.resolve())
    return Inspection("checkpoint", str(path), _facts(rows), _tables(rows, only, show))


def _facts(rows: CheckpointRows) -> dict[str, Any]:
    newest = rows.newest
    return {
        **{key: newest.facts["position"][key] for key in ("step", "epoch", "batch")},
        "checkpoint": newest.path.name,
        "checkpoint_kind": newest.facts["kind"],
        "parents": newest.parents,
    }


def _tables(
    rows: CheckpointRows, only: Collection[str], show: ShowProgress
) -> tuple[InspectedTable, ...]:
    names = rows.tables()
    for name in only:
        if name not in names:
            raise InvalidArgumentError(
                f"--table {name!r}: the checkpoint has {', '.join(names)}{nearest(name, names)}"
            )
    names = [name for name in names if not only or name in only]
    with show(sum(map(rows.rows_to_read, names))) as progress:
        try:
            return tuple(_table(rows, name, progress) for name in names)
        except DataLossError as err:
            if not rows.gone:
                raise
            raise _RemovedError(
                f"the run went on and removed {rows.gone[0]} while it was read; try again"
            ) from err


def _table(rows: CheckpointRows, name: str, progress: Progress) -> InspectedTable:
    entry = rows.newest.table(name)
    layout = rows.layout(name)
    statistics = TableStatistics(entry["step"])
    for piece in rows.read(name, progress.add):
        statistics.add(
            layout.weights(piece.lines), piece.clocks, piece.counts, layout.finite(piece.lines)
        )
    trained = TrainedTable(
        step=entry["step"],
        layout=layout,
        disk_bytes=rows.disk_bytes(name),
        optimizer=entry["optimizer"],
        totals=entry["statistics"],
        statistics=statistics,
    )
    return InspectedTable(
        name, statistics.rows, layout.width, layout.line_bytes, entry["digest"], trained
    )
