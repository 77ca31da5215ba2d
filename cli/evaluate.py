"""`platform evaluate`: AUC, logloss and calibration of a served model, a run or a version."""

from __future__ import annotations

import time
from typing import Any

import click

from hotrow.cli.predict import score, scoring_options, take_options, write_json
from hotrow.cli.quiet_start import import_tensorflow_quietly
from hotrow.cli.score_source import open_source, report_doubts
from hotrow.trainer.data.row_progress import RowProgress


@click.command("evaluate")
@scoring_options
@click.option("--json", "json_path", metavar="FILE", help="Write the metrics to this file, too.")
def command(json_path: str | None, **given: Any) -> None:
    """Measure AUC, logloss and calibration on a data file: of a server, a run or a version.

    Scores every row, as `platform predict` does, and compares the scores, which must be
    probabilities, with the labels. Calibration is the sum of the probabilities over the number of
    positives: 1 is right.

    \b
    Examples:
      platform evaluate --server localhost:8500 --model shop --data valid.csv
      platform evaluate runs/a --data valid.csv
      platform evaluate models/shop/1 --data valid.csv --positive yes
    """  # noqa: D301 (click wants a real \b)
    import_tensorflow_quietly()
    from hotrow.trainer.metrics import BinaryMetrics

    options = take_options(given)
    metrics = BinaryMetrics()
    with open_source(options) as source, RowProgress("scored", options.limit) as progress:
        start = time.monotonic()
        for batch in score(source, options, require_labels=True):
            if batch.labels is not None:
                metrics.update_probabilities(batch.labels, batch.scores)
            progress.add(len(batch.scores), batch.read_share)
    seconds = time.monotonic() - start
    quality = metrics.result()
    click.echo(source.title)
    click.echo(f"rows         {quality.rows} ({quality.rows / seconds:.0f} a second)")
    click.echo(f"AUC          {quality.auc:.6f}")
    click.echo(f"logloss      {quality.logloss:.6f}")
    click.echo(f"calibration  {quality.calibration:.6f}")
    click.echo(f"label mean   {quality.label_mean:.6f}")
    report_doubts(source)
    if json_path is not None:
        conditions = {**source.conditions, "data": options.data}
        reached = {**quality.as_dict(), **source.doubts, "seconds": seconds}
        write_json(json_path, {**conditions, **reached})
