"""`platform data`: generates, converts and inspects data files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hotrow.cli.data_inspect import inspect_command
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
    import pyarrow as pa

    from hotrow.trainer.data import DataFile
    from hotrow.trainer.data.row_progress import RowProgress
    from hotrow.trainer.data.synthetic import Generation


@click.group(name="data")
def command() -> None:
    """Generate, convert and inspect data files."""


@command.command(name="generate")
@click.argument("out", type=FILE)
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
    type=FILE,
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
@click.option("--json", "json_file", type=click.Path(allow_dash=True), help=JSON_HELP)
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
    report(generation.as_dict(), json_file, lambda: _generation_lines(generation))


command.add_command(inspect_command)


@command.command(name="convert")
@click.argument("source", metavar="IN", type=FILE)
@click.argument("out", metavar="OUT.parquet", type=FILE)
@reading_options(guessed=False)
@policy_option("fail")
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
    """Opens a data file by the options of `reading_options`."""
    from pydantic import ValidationError

    from hotrow.config import DataConfig
    from hotrow.trainer.data import open_data
    from hotrow.trainer.data.format_guess import guess_format

    if reading["config"] is not None:
        return open_by_config(path, reading["config"], reading["on_malformed"])
    try:
        data = DataConfig(
            format=reading["format_name"] or guess_format(path),
            train=str(path),
            columns=split_columns(reading["columns"]),
            delimiter=reading["delimiter"],
            label=reading["label"],
            positive=reading["positive"],
            weights=reading["weights"],
            on_malformed=reading["on_malformed"],
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


def _generation_lines(generation: Generation) -> Iterator[str]:
    for file in generation.files:
        auc = "undefined" if file.true_auc is None else f"{file.true_auc:.5f}"
        yield (
            f"{file.path}: {file.rows:,} rows, label rate {file.label_rate:.4f}, "
            f"true AUC {auc}, true logloss {file.true_logloss:.5f}"
        )


def _malformed_note(file: DataFile) -> str:
    return f"; left out: {file.malformed}" if file.malformed.count else ""
