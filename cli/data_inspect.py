"""`platform data inspect`: what a data file holds, and a configuration for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hotrow.cli.data_reading import (
    FILE,
    JSON_HELP,
    open_by_config,
    policy_option,
    reading_options,
    split_columns,
)
from hotrow.cli.data_report import report
from hotrow.errors import InvalidArgumentError

if TYPE_CHECKING:
    from hotrow.trainer.data.guess.reading import Reading
    from hotrow.trainer.data.summary import ColumnSummary, Summary

_TOP_WIDTH = 36


@click.command(name="inspect")
@click.argument("file", type=FILE)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Count distinct and top values in so many first rows.",
)
@click.option("--top", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--write-config",
    "config_out",
    type=FILE,
    metavar="NEW.yaml",
    help="Write a configuration for `platform train`, with a comment at each guess.",
)
@reading_options(guessed=True)
@policy_option("skip")
@click.option("--json", "json_file", type=click.Path(allow_dash=True), help=JSON_HELP)
def inspect_command(
    file: Path,
    rows: int,
    top: int,
    config_out: Path | None,
    json_file: str | None,
    config: Path | None,
    **reading: Any,
) -> None:
    """Show what a data file holds: rows, missing values, labels, distinct and top values.

    FILE is Criteo TSV, CSV or LibSVM, plain or compressed (.gz, .zst, .bz2), or Parquet. Format,
    delimiter, header, column of labels, and the label that means 1 are guessed where no option
    gives them; the second line of the output says what was guessed.

    \b
    Examples:
      platform data inspect train.tsv.gz
      platform data inspect adult.csv --positive ">50K" --label income --json -
      platform data inspect bank.csv --write-config bank.yaml
    """  # noqa: D301 (click wants a real \b)
    from hotrow.trainer.data import open_data
    from hotrow.trainer.data.guess.proposal import require_new, write_proposal
    from hotrow.trainer.data.row_progress import RowProgress
    from hotrow.trainer.data.summary import summarize

    if config_out is not None:
        require_new(config_out)
    if config is not None:
        if config_out is not None:
            raise InvalidArgumentError("--write-config proposes what --config has; give one")
        data_file = open_by_config(file, config, reading["on_malformed"])
        found = None
    else:
        found = _found(file, reading)
        data_file = open_data(file, found.data)
    typed = found is None or found.data.format != "csv"
    with RowProgress("read") as progress:
        summary = summarize(
            data_file,
            rows,
            top,
            lambda done: progress.add(done, data_file.read_share),
            typed=typed,
        )
    values = summary.as_dict()
    if found is not None:
        values["reading"] = found.as_dict()
    report(values, json_file, lambda: _lines(summary, found))
    if config_out is not None and found is not None:
        write_proposal(config_out, summary, found)
        line = f"wrote {config_out}; check its guesses, then: platform train {config_out}"
        click.echo(line, err=json_file == "-")


def _found(path: Path, reading: dict[str, Any]) -> Reading:
    from dataclasses import replace

    from hotrow.trainer.data.guess.reading import Given, guess_reading

    given = Given(
        format=reading["format_name"],
        columns=split_columns(reading["columns"]),
        delimiter=reading["delimiter"],
        label=reading["label"],
        positive=reading["positive"],
        weights=reading["weights"],
    )
    found = guess_reading(path, given)
    policy = {"on_malformed": reading["on_malformed"]}
    return replace(found, data=found.data.model_copy(update=policy))


def _lines(summary: Summary, reading: Reading | None) -> Iterator[str]:
    rate = "no labels" if summary.label_rate is None else f"label rate {summary.label_rate:.4f}"
    yield f"{summary.path}: {summary.rows:,} rows, {len(summary.columns)} columns, {rate}"
    if reading is not None:
        yield _reading_line(reading)
    if summary.malformed.count:
        yield f"left out: {summary.malformed}"
    if summary.counted_rows < summary.rows:
        yield f"distinct and top values are those of the first {summary.counted_rows:,} rows"
    width = max([6, *(len(column.name) for column in summary.columns)])
    yield f"{'column':<{width}}  kind     missing  distinct       mean  top values (count)"
    for column in summary.columns:
        mean = "" if column.mean is None else f"{column.mean:.4g}"
        yield (
            f"{column.name:<{width}}  {column.kind:<7} {column.missing_share:>7.1%} "
            f"{column.distinct:>9,} {mean:>10}  {_top(column)}"
        )


def _reading_line(reading: Reading) -> str:
    data = reading.data
    parts = [f"format {data.format}"]
    if data.format == "csv":
        header = "header in line 1" if data.columns is None else "no header"
        parts += [f"delimiter {data.delimiter or ','!r}", header]
    parts.append(f"label {data.label}" if reading.has_label else "no column of labels")
    if data.positive is not None:
        parts.append(f"positive {data.positive!r}")
    guessed = ", ".join(reading.reasons)
    return f"read as: {', '.join(parts)}" + (f" (guessed: {guessed})" if guessed else "")


def _top(column: ColumnSummary) -> str:
    return ", ".join(f"{_cut(value)} ({count:,})" for value, count in column.top)


def _cut(value: str) -> str:
    return value if len(value) <= _TOP_WIDTH else value[: _TOP_WIDTH - 3] + "..."
