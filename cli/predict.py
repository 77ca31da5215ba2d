"""`platform predict`: rows of a data file to a server, scores back; `evaluate` sends likewise."""

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
from hotrow.cli.quiet_start import import_tensorflow_quietly
from hotrow.config import DataConfig
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data.format_guess import Format, guess_format
from hotrow.trainer.data.row_progress import RowProgress


@dataclass(frozen=True)
class ScoringOptions:
    """Where to send the rows of which file; see the options of `scoring_options`."""

    server: str
    model: str
    data: str
    format: Format | None
    label: str
    positive: str | None
    columns: str | None
    delimiter: str | None
    limit: int | None
    batch_size: int
    on_malformed: Literal["fail", "skip"]
    signature: str
    output: str | None
    timeout_seconds: float

    def data_config(self, weighted: bool) -> DataConfig:
        """Returns how to read the file.

        Args:
            weighted: whether the values of a LibSVM file are weights of its ids.

        Raises:
            InvalidArgumentError: the format is not given and the name does not tell it, or an
                option does not fit the format.
        """
        try:
            return DataConfig(
                # Only LibSVM has weighted ids, whether as text or converted to Parquet.
                format=self.format or ("libsvm" if weighted else guess_format(self.data)),
                train=self.data,
                label=self.label,
                positive=self.positive,
                columns=tuple(self.columns.split(",")) if self.columns else None,
                delimiter=self.delimiter,
                weights=weighted,
                on_malformed=self.on_malformed,
            )
        except pydantic.ValidationError as err:
            raise InvalidArgumentError(f"--data {self.data}: {err.errors()[0]['msg']}") from err


@dataclass(frozen=True)
class ScoredBatch:
    """Rows with the model's scores.

    Attributes:
        version: the model's version at the first request.
        first_row: number of the first row, from 1.
        scores: float [B].
        labels: float32 [B] of 0 and 1, or None when the file has none.
        read_share: how much of the file was read so far, in [0, 1].
    """

    version: int
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
        click.option("--signature", default="serving_default", show_default=True),
        click.option(
            "--batch_size",
            "--batch-size",
            type=click.IntRange(min=1),
            default=1024,
            show_default=True,
            help="Rows of a request.",
        ),
        click.option(
            "--on_malformed",
            "--on-malformed",
            type=click.Choice(["fail", "skip"]),
            default="fail",
            show_default=True,
            help="Stop at the first malformed line, or skip and count such lines.",
        ),
        click.option("--limit", type=click.IntRange(min=1), help="Rows to send.  [default: all]"),
        click.option("--delimiter", help="Between a CSV's values.  [default: a comma]"),
        click.option("--columns", metavar="A,B,..", help="Names of a CSV without a header line."),
        click.option("--positive", metavar="TEXT", help="The label of a CSV that means 1."),
        click.option("--label", default="label", show_default=True, help="Column of the labels."),
        click.option(
            "--format",
            type=click.Choice(["criteo", "csv", "libsvm", "parquet"]),
            help="Of the file.  [default: by its name]",
        ),
        click.option("--data", required=True, metavar="FILE", help="Rows to send."),
        click.option("--model", required=True, help="Name of the served model."),
        click.option(
            "--server", required=True, metavar="HOST:PORT", help="gRPC address of the server."
        ),
    ):
        command = option(command)
    return command


def score(options: ScoringOptions, require_labels: bool) -> Iterator[ScoredBatch]:
    """Yields the rows of the file with their scores, batch by batch in file order.

    Raises:
        HotrowError: the server cannot be reached or refuses; the file cannot be read or lacks a
            column that the model needs.
    """
    if not Path(options.data).is_file():
        raise InvalidArgumentError(f"--data {options.data}: no such file; give a data file")
    import_tensorflow_quietly()
    from hotrow.serving.client import PredictClient
    from hotrow.serving.columns import choose_output, column_inputs, column_scores
    from hotrow.trainer.data import Column, ColumnKind, open_data

    with PredictClient(options.server, options.model, options.timeout_seconds) as client:
        version, signature = client.signature(options.signature)
        output = choose_output(signature, options.output)
        inputs = column_inputs(signature)
        data = options.data_config(any(item.weighted for item in inputs))
        columns = [Column(item.name, ColumnKind(item.kind)) for item in inputs]
        try:
            file = open_data(options.data, data, columns=columns, require_labels=require_labels)
        except InvalidArgumentError as err:
            raise InvalidArgumentError(f"{err} (model {options.model!r} takes it)") from err
        row = 1
        for batch in file.raw_batches(options.batch_size, options.limit):
            tensors = {}
            for item in inputs:
                tensors.update(item.pack(batch.columns[item.name]))
            answer = client.predict(options.signature, tensors, output)
            scores = column_scores(output, answer, batch.size)
            yield ScoredBatch(version, row, scores, batch.labels, file.read_share)
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
    """Send the rows of a data file to a server and print their scores.

    Prints a line for each row: its number among the rows that were sent, from 1, and its score.
    Columns of the file go to the model's inputs of the same name.
    """
    options = ScoringOptions(**given)
    scores: list[float] = []
    version = 0
    # Rows that are printed to a terminal show themselves how far the command is.
    with RowProgress("scored", options.limit, enabled=not sys.stdout.isatty()) as progress:
        for batch in score(options, require_labels=False):
            version = batch.version
            for row, value in enumerate(batch.scores, start=batch.first_row):
                click.echo(f"{row}\t{value!s}")
            scores.extend(batch.scores.tolist())
            progress.add(len(batch.scores), batch.read_share)
    if json_path is not None:
        document = {
            "model": options.model,
            "version": version,
            "data": options.data,
            "rows": len(scores),
            "scores": scores,
        }
        write_json(json_path, document)
