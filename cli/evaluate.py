"""`platform evaluate`: AUC, logloss and calibration of a served model, over gRPC."""

from __future__ import annotations

import sys
import time
from typing import Any

import click
from tqdm import tqdm

from hotrow.cli.predict import ScoringOptions, score, scoring_options, write_json
from hotrow.cli.quiet_start import import_tensorflow_quietly

_LINE_SECONDS = 10.0  # between two lines of progress that goes to a file


class _Progress:
    """A bar on a terminal, a line every now and then elsewhere; on standard error."""

    def __init__(self, total: int | None) -> None:
        self._bar = tqdm(
            total=total, unit=" rows", unit_scale=True, disable=not sys.stderr.isatty()
        )
        self._rows = 0
        self._next_line = time.monotonic() + _LINE_SECONDS

    def add(self, rows: int) -> None:
        self._rows += rows
        self._bar.update(rows)
        if self._bar.disable and time.monotonic() >= self._next_line:
            click.echo(f"{self._rows} rows", err=True)
            self._next_line = time.monotonic() + _LINE_SECONDS

    def close(self) -> None:
        self._bar.close()


@click.command("evaluate")
@scoring_options
@click.option("--json", "json_path", metavar="FILE", help="Write the figures to this file, too.")
def command(json_path: str | None, **given: Any) -> None:
    """Measure AUC, logloss and calibration of a served model on a data file.

    Sends every row to the server, as `platform predict` does, and compares the scores, which must
    be probabilities, with the labels. Calibration is the sum of the probabilities over the number
    of positives: 1 is right.
    """
    import_tensorflow_quietly()
    from hotrow.trainer.metrics import BinaryMetrics

    options = ScoringOptions(**given)
    metrics = BinaryMetrics()
    progress = _Progress(options.limit)
    version = 0
    start = time.monotonic()
    try:
        for batch in score(options, require_labels=True):
            if batch.labels is not None:
                metrics.update_probabilities(batch.labels, batch.scores)
            version = batch.version
            progress.add(len(batch.scores))
    finally:
        progress.close()
    seconds = time.monotonic() - start
    quality = metrics.result()
    click.echo(f"model        {options.model}, version {version}")
    click.echo(f"rows         {quality.rows} ({quality.rows / seconds:.0f} a second)")
    click.echo(f"AUC          {quality.auc:.6f}")
    click.echo(f"logloss      {quality.logloss:.6f}")
    click.echo(f"calibration  {quality.calibration:.6f}")
    click.echo(f"label mean   {quality.label_mean:.6f}")
    if json_path is not None:
        conditions = {"model": options.model, "version": version, "data": options.data}
        write_json(json_path, {**conditions, **quality.as_dict(), "seconds": seconds})
