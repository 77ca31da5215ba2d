"""The models that score rows for `platform predict` and `platform evaluate`. B rows."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
import numpy as np
import numpy.typing as npt

from hotrow.colors import colored
from hotrow.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from hotrow.cli.predict import ScoringOptions
    from hotrow.trainer.data.batch import RawBatch
    from hotrow.trainer.data.data_file import DataFile

_DOUBTS = {
    "default_rows": "got a default row: the server could not read its store in time, so these "
    "scores are not the model's",
    "stale_rows": "got a row that may be old: the server cannot follow its store",
}
_CONFIG, _SAVED_MODEL = "config.yaml", "saved_model.pb"


class ScoreSource(Protocol):
    """A model that scores rows: a server's, a version's, or a run's.

    Attributes:
        title: a line for people: "model        shop, version 1".
        conditions: the same for a report, JSON types by name.
        doubts: after scoring, counts of lookups that did not get their newest row, by outcome.
            Empty: all did.
    """

    title: str
    conditions: dict[str, Any]

    @property
    def doubts(self) -> dict[str, int]:
        """See above; after scoring."""

    def open(self, require_labels: bool) -> DataFile:
        """Returns the file of the options with the columns that the model needs.

        Raises:
            HotrowError: the file cannot be read or lacks a column.
        """

    def score(self, batch: RawBatch) -> npt.NDArray[np.floating]:
        """Returns the scores of rows, float [B].

        Raises:
            HotrowError: the model cannot answer.
        """


def open_source(options: ScoringOptions) -> contextlib.AbstractContextManager[ScoreSource]:
    """Returns the source that the options name; use it in a `with` statement.

    Raises:
        InvalidArgumentError: options name no source, or two, or do not fit the source.
        NotFoundError: the directory is neither a run nor a version.
    """
    served = options.server is not None or options.model is not None
    if served == (options.place is not None):
        given = "both are given" if served else "neither is given"
        raise InvalidArgumentError(
            f"{given}: score with --server HOST:PORT --model NAME, or without a server with "
            "RUN_DIR or VERSION_DIR"
        )
    if not Path(options.data).is_file():
        raise InvalidArgumentError(f"--data {options.data}: no such file; give a data file")
    if options.place is None:
        _refuse(options, "a server", "step", "checkpoint", "store")
        if options.server is None or options.model is None:
            missing = "--server HOST:PORT" if options.server is None else "--model NAME"
            raise InvalidArgumentError(f"{missing} is missing: give --server and --model together")
        from hotrow.cli.served_scores import ServedScores

        return ServedScores(options)
    if (options.place / _CONFIG).exists():
        _refuse(options, "a run", "store", "signature", "output")
        from hotrow.cli.run_scores import RunScores

        return contextlib.nullcontext(RunScores(options, options.place))
    if (options.place / _SAVED_MODEL).exists():
        _refuse(options, "a version", "step", "checkpoint")
        from hotrow.cli.version_scores import VersionScores

        return VersionScores(options, options.place)
    raise NotFoundError(
        f"{options.place} is neither a run ({_CONFIG}) nor a version ({_SAVED_MODEL}); give "
        "runs/NAME, or models/NAME/VERSION"
    )


def report_doubts(source: ScoreSource) -> None:
    """Prints a warning for each kind of row that makes the scores doubtful."""
    for kind, lookups in source.doubts.items():
        if lookups:
            label = colored("warning:", "yellow", sys.stderr)
            click.echo(f"{label} {lookups:,} lookups {_DOUBTS[kind]}", err=True)


def _refuse(options: ScoringOptions, kind: str, *names: str) -> None:
    """Refuses options that have no meaning for a kind of source."""
    for name in names:
        if getattr(options, name) is not None:
            raise InvalidArgumentError(f"--{name} with {kind}: has no meaning there; leave it out")
