"""`platform evaluate`: AUC, logloss and calibration of a served model, over gRPC."""

from __future__ import annotations

import time
from typing import Any

import click

from hotrow.cli.predict import ScoringOptions, score, scoring_options, write_json
from hotrow.cli.quiet_start import import_tensorflow_quietly
from hotrow.trainer.data.row_progress import RowProgress


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
    version = 0
    start = time.monotonic()
    with RowProgress("scored", options.limit) as progress:
        for batch in score(options, require_labels=True):
            if batch.labels is not None:
                metrics.update_probabilities(batch.labels, batch.scores)
            version = batch.version
            progress.add(len(batch.scores), batch.read_share)
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
