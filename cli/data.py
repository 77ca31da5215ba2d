"""`platform data`: generates, converts and inspects data files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hotrow.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

    from hotrow.trainer.data import DataFile
    from hotrow.trainer.data.row_progress import RowProgress
    from hotrow.trainer.data.summary import ColumnSummary, Summary
    from hotrow.trainer.data.synthetic import Generation

_FILE = click.Path(dir_okay=False, path_type=Path)
_JSON_HELP = "Write the result to a file as JSON; - is standard output."
_TOP_WIDTH = 36


@click.group(name="data")
def command() -> None:
    """Generate, convert and inspect data files."""


@command.command(name="generate")
@click.argument("out", type=_FILE)
@click.option("--rows", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@click.option(
    "--valid-rows",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Rows of a second file, for validation; 0 writes none.",
)
@click.option(
    "--valid-out",
    type=_FILE,
    help="Where these go.  [default: OUT with .valid before its endings]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the model and its rows.")
@click.option(
    "--keys",
    type=int,
    default=100_000,
    show_default=True,
    help="Distinct keys of the largest column; the others have fewer.",
)
@click.option(
    "--skew",
    type=float,
    default=1.05,
    show_default=True,
    help="Zipf's exponent: the key of rank r has odds r^-skew.",
)
@click.option(
    "--noise",
    type=float,
    default=0.05,
    show_default=True,
    help="Share of rows whose label ignores the features.",
)
@click.option("--json", "json_file", type=click.Path(allow_dash=True), help=_JSON_HELP)
def generate_command(
    out: Path,
    rows: int,
    valid_rows: int,
    valid_out: Path | None,
    seed: int,
    keys: int,
    skew: float,
    noise: float,
    json_file: str | None,
) -> None:
    """Write click data of Criteo's format, drawn from a known model.

    OUT gets a label, 13 counts and 26 categorical columns, tab-separated; a name that ends in .gz
    or .zst is compressed. The AUC and logloss of the true probabilities, which no model can beat
    but by luck, are printed and written to OUT.truth.json. The same options give the same rows;
    more --rows only add to them.

    \b
    Examples:
      platform data generate train.tsv.gz --valid-rows 100000
      platform data generate big.tsv --rows 50000000 --keys 100000000
    """  # noqa: D301 (click wants a real \b)
    from hotrow.trainer.data.row_progress import RowProgress
    from hotrow.trainer.data.synthetic import Parameters, generate

    files = {out: rows}
    if valid_rows:
        files[valid_out or _valid_path(out)] = valid_rows
    elif valid_out is not None:
        raise InvalidArgumentError("--valid-out is set, but --valid-rows is 0; give both")
    if len(files) == 1 and valid_rows:
        raise InvalidArgumentError(f"--valid-out is OUT itself, {out}; name another file")
    parameters = Parameters(seed=seed, keys=keys, skew=skew, noise=noise)
    with RowProgress("generated", rows + valid_rows) as progress:
        generation = generate(files, parameters, progress.add)
    _report(generation.as_dict(), json_file, lambda: _generation_lines(generation))


def _reading_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say how a data file is read."""
    for option in (
        click.option(
            "--config",
            type=_FILE,
            metavar="CONFIG.yaml",
            help="Read the columns of a run's features, as its data section says.",
        ),
        click.option("--weights", is_flag=True, help="Keep the values of LibSVM as weights."),
        click.option("--positive", metavar="TEXT", help="The label of a CSV that means 1."),
        click.option("--label", default="label", show_default=True, help="Column of the labels."),
        click.option("--delimiter", help="Between a CSV's values.  [default: a comma]"),
        click.option("--columns", metavar="A,B,..", help="Names of a CSV without a header line."),
        click.option(
            "--format",
            "format_name",
            type=click.Choice(["criteo", "csv", "libsvm"]),
            help="Of the file.  [default: by its name]",
        ),
    ):
        function = option(function)
    return function


def _policy_option(default: str) -> Callable[..., Any]:
    return click.option(
        "--on-malformed",
        type=click.Choice(["fail", "skip"]),
        default=default,
        show_default=True,
        help="Stop at the first malformed line, or skip and count such lines.",
    )


@command.command(name="inspect")
@click.argument("file", type=_FILE)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Count distinct and top values in so many first rows.",
)
@click.option("--top", type=click.IntRange(min=1), default=3, show_default=True)
@_reading_options
@_policy_option("skip")
@click.option("--json", "json_file", type=click.Path(allow_dash=True), help=_JSON_HELP)
def inspect_command(file: Path, rows: int, top: int, json_file: str | None, **reading: Any) -> None:
    """Show what a data file holds: rows, missing values, labels, distinct and top values.

    FILE is Criteo TSV, CSV or LibSVM, plain or compressed (.gz, .zst, .bz2), or Parquet.

    \b
    Examples:
      platform data inspect train.tsv.gz
      platform data inspect adult.csv --positive ">50K" --label income --json -
    """  # noqa: D301 (click wants a real \b)
    from hotrow.trainer.data.summary import summarize

    data_file = _open(file, reading)
    with _progress("read") as progress:
        summary = summarize(
            data_file, rows, top, lambda done: progress.add(done, data_file.read_share)
        )
    _report(summary.as_dict(), json_file, lambda: _summary_lines(summary))


@command.command(name="convert")
@click.argument("source", metavar="IN", type=_FILE)
@click.argument("out", metavar="OUT.parquet", type=_FILE)
@_reading_options
@_policy_option("fail")
def convert_command(source: Path, out: Path, **reading: Any) -> None:
    """Convert a data file to Parquet.

    Labels become 0 and 1, numbers float32, integers int64, ids lists of int64; everything else is
    text. A CSV is all text unless --config says which columns are numbers. Training, predict and
    evaluate read the result like the file it came from.

    \b
    Examples:
      platform data convert train.tsv.gz train.parquet
      platform data convert adult.csv adult.parquet --config adult.yaml --on-malformed skip
    """  # noqa: D301 (click wants a real \b)
    from hotrow.trainer.data.parquet import write_parquet

    if out.suffix != ".parquet":
        raise InvalidArgumentError(f"{out} does not end in .parquet; Parquet is what is written")
    file = _open(source, reading)
    with _progress("converted") as progress:
        rows = write_parquet(out, _counted(file, progress))
    click.echo(f"{out}: {rows:,} rows, {len(file.columns)} columns{_malformed_note(file)}")


def _open(path: Path, reading: dict[str, Any]) -> DataFile:
    """Opens a data file by the options of `_reading_options`."""
    from pydantic import ValidationError

    from hotrow.config import DataConfig, load_config
    from hotrow.trainer.data import open_data
    from hotrow.trainer.data.format_guess import guess_format
    from hotrow.trainer.data.list_columns import with_list_columns

    policy = reading["on_malformed"]
    if reading["config"] is not None:
        config = with_list_columns(load_config(reading["config"], []), path)
        data = config.data.model_copy(update={"on_malformed": policy})
        return open_data(path, data, config.features)
    columns = reading["columns"]
    try:
        data = DataConfig(
            format=reading["format_name"] or guess_format(path),
            train=str(path),
            columns=None if columns is None else tuple(columns.split(",")),
            delimiter=reading["delimiter"],
            label=reading["label"],
            positive=reading["positive"],
            weights=reading["weights"],
            on_malformed=policy,
        )
    except ValidationError as err:
        raise InvalidArgumentError(f"{path}: {err.errors()[0]['msg']}") from err
    return open_data(path, data)


def _progress(what: str) -> RowProgress:
    from hotrow.trainer.data.row_progress import RowProgress

    return RowProgress(what)


def _counted(file: DataFile, progress: RowProgress) -> Iterator[pa.RecordBatch]:
    for batch in file.record_batches():
        yield batch
        progress.add(batch.num_rows, file.read_share)


def _valid_path(out: Path) -> Path:
    """Returns `x.valid.tsv.gz` for `x.tsv.gz`."""
    stem, *endings = out.name.split(".")
    return out.with_name(".".join([stem, "valid", *endings]))


def _report(
    values: dict[str, Any], json_file: str | None, lines: Callable[[], Iterator[str]]
) -> None:
    """Prints the lines for people, or JSON to standard output instead, or JSON to a file too."""
    text = json.dumps(values, indent=2)
    if json_file == "-":
        click.echo(text)
        return
    for line in lines():
        click.echo(line)
    if json_file is not None:
        Path(json_file).write_text(text + "\n", encoding="utf-8")


def _generation_lines(generation: Generation) -> Iterator[str]:
    for file in generation.files:
        auc = "undefined" if file.true_auc is None else f"{file.true_auc:.5f}"
        yield (
            f"{file.path}: {file.rows:,} rows, label rate {file.label_rate:.4f}, "
            f"true AUC {auc}, true logloss {file.true_logloss:.5f}"
        )


def _summary_lines(summary: Summary) -> Iterator[str]:
    rate = "no labels" if summary.label_rate is None else f"label rate {summary.label_rate:.4f}"
    yield f"{summary.path}: {summary.rows:,} rows, {len(summary.columns)} columns, {rate}"
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


def _top(column: ColumnSummary) -> str:
    return ", ".join(f"{_cut(value)} ({count:,})" for value, count in column.top)


def _cut(value: str) -> str:
    return value if len(value) <= _TOP_WIDTH else value[: _TOP_WIDTH - 3] + "..."


def _malformed_note(file: DataFile) -> str:
    return f"; left out: {file.malformed}" if file.malformed.count else ""
