"""`platform predict`: the scores of a data file's rows; `evaluate` reads and scores likewise."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
import numpy.typing as npt
import pydantic

from hotrow.cli.malformed_lines import report_malformed
from hotrow.cli.score_source import ScoreSource, open_source, report_doubts
from hotrow.cli.store_flags import store_flags, take_store_access
from hotrow.config import DataConfig
from hotrow.config.data import CRITEO_LABEL
from hotrow.errors import InvalidArgumentError
from hotrow.store.access import StoreAccess
from hotrow.trainer.data.format_guess import Format, guess_format
from hotrow.trainer.data.row_progress import RowProgress

_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class ScoringOptions:
    """The model that scores, and the file with the rows; see the options of `scoring_options`."""

    place: Path | None
    step: int | None
    checkpoint: Path | None
    store: str | None
    access: StoreAccess | None
    server: str | None
    model: str | None
    data: str
    format: Format | None
    label: str | None
    positive: str | None
    columns: str | None
    delimiter: str | None
    limit: int | None
    batch_size: int
    on_malformed: Literal["fail", "skip"]
    signature: str | None
    output: str | None
    timeout_seconds: float

    @property
    def signature_name(self) -> str:
        """The name of the signature to use."""
        return self.signature or _SIGNATURE

    def data_config(self, weighted: bool) -> DataConfig:
        """Returns how to read the file.

        Args:
            weighted: whether the values of a LibSVM file are weights of its ids.

        Raises:
            InvalidArgumentError: the format is not given and the name does not show it, or an
                option does not fit the format.
        """
        try:
            return DataConfig(
                # Only LibSVM has weighted ids, whether as text or converted to Parquet.
                format=self.format or ("libsvm" if weighted else guess_format(self.data)),
                train=self.data,
                label=self.label or CRITEO_LABEL,
                positive=self.positive,
                columns=tuple(self.columns.split(",")) if self.columns else None,
                delimiter=self.delimiter,
                weights=weighted,
                on_malformed=self.on_malformed,
            )
        except pydantic.ValidationError as err:
            raise InvalidArgumentError(f"--data {self.data}: {err.errors()[0]['msg']}") from err

    def data_config_of(self, run: DataConfig) -> DataConfig:
        """Returns how to read the file: as the run reads its own, except for the given options.

        Raises:
            InvalidArgumentError: an option does not fit the format.
        """
        given = {
            "format": self.format,
            "label": self.label,
            "positive": self.positive,
            "columns": self.columns.split(",") if self.columns else None,
            "delimiter": self.delimiter,
            "on_malformed": self.on_malformed,
        }
        changed = {name: value for name, value in given.items() if value is not None}
        own = {**run.model_dump(), "train": self.data, "valid": None}
        try:
            return DataConfig.model_validate({**own, **changed})
        except pydantic.ValidationError as err:
            raise InvalidArgumentError(f"--data {self.data}: {err.errors()[0]['msg']}") from err


@dataclass(frozen=True)
class ScoredBatch:
    """Rows with the model's scores.

    Attributes:
        first_row: number of the first row, from 1.
        scores: float [B].
        labels: float32 [B] of 0 and 1, or None when the file has none.
        read_share: how much of the file was read so far, in [0, 1].
    """

    first_row: int
    scores: npt.NDArray[np.floating]
    labels: npt.NDArray[np.float32] | None
    read_share: float


def scoring_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of `ScoringOptions` to a command."""
    for option in (
        click.option(
            "--timeout_seconds", "--timeout-seconds", type=float, default=60.0, show_default=True
        ),
        click.option("--output", help="Output to take.  [default: scores, or the only one]"),
        click.option("--signature", help=f"Of a served model or version.  [default: {_SIGNATURE}]"),
        click.option(
            "--batch_size",
            "--batch-size",
            type=click.IntRange(min=1),
            default=1024,
            show_default=True,
            help="Rows that are scored at a time, in one request.",
        ),
        click.option(
            "--on_malformed",
            "--on-malformed",
            type=click.Choice(["fail", "skip"]),
            default="fail",
            show_default=True,
            help="Stop at the first malformed line, or skip and count such lines.",
        ),
        click.option("--limit", type=click.IntRange(min=1), help="Rows to score.  [default: all]"),
        click.option("--delimiter", help="Between a CSV's values.  [default: a comma]"),
        click.option("--columns", metavar="A,B,..", help="Names of a CSV without a header line."),
        click.option("--positive", metavar="TEXT", help="The label of a CSV that means 1."),
        click.option(
            "--label", help="Column of the labels.  [default: label; with RUN_DIR, the run's own]"
        ),
        click.option(
            "--format",
            type=click.Choice(["criteo", "csv", "libsvm", "parquet"]),
            help="Of the file.  [default: by its name; with RUN_DIR, the run's own]",
        ),
        click.option("--data", required=True, metavar="FILE", help="Rows to score."),
        store_flags,
        click.option(
            "--store", metavar="URL", help="With VERSION_DIR: its rows, if its own URL differs."
        ),
        click.option(
            "--checkpoint",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="With RUN_DIR: this checkpoint, .../step-00005000.",
        ),
        click.option(
            "--step",
            type=click.IntRange(min=0),
            metavar="N",
            help="With RUN_DIR: the checkpoint of step N.  [default: the best, else the newest]",
        ),
        click.option("--model", help="Name of the served model."),
        click.option("--server", metavar="HOST:PORT", help="gRPC address of the server."),
        click.argument(
            "place",
            metavar="[RUN_DIR|VERSION_DIR]",
            required=False,
            type=click.Path(path_type=Path),
        ),
    ):
        command = option(command)
    return command


def take_options(given: dict[str, Any]) -> ScoringOptions:
    """Returns the options of `scoring_options` that a command was given.

    Raises:
        HotrowError: see `take_store_access`.
    """
    return ScoringOptions(access=take_store_access(given), **given)


def score(
    source: ScoreSource, options: ScoringOptions, require_labels: bool
) -> Iterator[ScoredBatch]:
    """Yields the rows of the file with their scores, batch by batch in file order.

    Raises:
        HotrowError: the source cannot score; the file cannot be read or lacks a column that the
            model needs.
    """
    file = source.open(require_labels)
    row = 1
    for batch in file.raw_batches(options.batch_size, options.limit):
        yield ScoredBatch(row, source.score(batch), batch.labels, file.read_share)
        row += batch.size
    report_malformed(file.malformed)


def write_json(path: str, document: dict[str, Any]) -> None:
    """Writes a report; a number that is not finite becomes null.

    Raises:
        InvalidArgumentError: the file cannot be written.
    """
    finite = {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in document.items()
    }
    try:
        Path(path).write_text(json.dumps(finite, indent=2) + "\n", encoding="utf-8")
    except OSError as err:
        raise InvalidArgumentError(f"--json {path} cannot be written: {err.strerror}") from err


@click.command("predict")
@scoring_options
@click.option("--json", "json_path", metavar="FILE", help="Write the scores to this file, too.")
def command(json_path: str | None, **given: Any) -> None:
    """Print the scores of a data file's rows: of a server, a run or a version.

    Prints a line for each row: its number among the rows that were scored, from 1, and its score.
    Columns of the file go to the model's inputs of the same name.

    \b
    Examples:
      platform predict --server localhost:8500 --model shop --data rows.csv
      platform predict runs/a --step 628 --data rows.csv
      platform predict models/shop/1 --data rows.csv
    """  # noqa: D301 (click wants a real \b)
    options = take_options(given)
    scores: list[float] = []
    # Rows printed to a terminal already show the progress.
    shown = RowProgress("scored", options.limit, enabled=not sys.stdout.isatty())
    with open_source(options) as source, shown as progress:
        for batch in score(source, options, require_labels=False):
            for row, value in enumerate(batch.scores, start=batch.first_row):
                click.echo(f"{row}\t{value!s}")
            scores.extend(batch.scores.tolist())
            progress.add(len(batch.scores), batch.read_share)
    report_doubts(source)
    if json_path is not None:
        document = {
            **source.conditions,
            **source.doubts,
            "data": options.data,
            "rows": len(scores),
            "scores": scores,
        }
        write_json(json_path, document)
