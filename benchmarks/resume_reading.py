"""How long does a resumed run read before its first batch?

Generated rows in Criteo's format, all 39 columns, as plain TSV, gzip and Parquet. Each is read
whole, batch by batch, in the file's order. Then it is read from a position on until the first
batch is there. With `on_malformed: fail`, Parquet's row groups before the position are not read,
and lines are only counted. With `skip`, every row is read and checked, as all resumed runs did
before. CPU seconds of the process, the median of the repeats; ratios are to the rows before the
position when the file is read whole.

    python benchmarks/resume_reading.py [--rows 2000000] [--at 0.9] [--repeats 3] [--folder DIR]
"""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import click

from hotrow.cli.main import main
from hotrow.config import CRITEO_DENSE, CRITEO_SPARSE, RunConfig, parse_config
from hotrow.trainer.data import BatchStream

BATCH = 4096
FILES = ("a.tsv", "a.tsv.gz", "a.parquet")


def config_of(policy: str) -> RunConfig:
    """Returns a configuration of all columns."""
    return parse_config(
        {
            "name": "resume",
            "data": {
                "format": "criteo",
                "train": "-",
                "batch_size": BATCH,
                "on_malformed": policy,
            },
            "features": {
                "dense": {"columns": list(CRITEO_DENSE), "transform": "log"},
                "sparse": {"columns": list(CRITEO_SPARSE), "dim": 4},
            },
            "model": {"arch": "logistic"},
        }
    )


def write_file(folder: Path, name: str, rows: int) -> Path:
    """Writes a file of `FILES`, if it is not there yet; Parquet from the TSV; returns its path."""
    path = folder / name
    if path.exists():
        return path
    if path.suffix == ".parquet":
        _run("data", "convert", str(write_file(folder, FILES[0], rows)), str(path))
    else:
        _run("data", "generate", str(path), "--rows", str(rows))
    return path


def _run(*arguments: str) -> None:
    if main(list(arguments)) != 0:
        raise SystemExit(f"{' '.join(arguments)} failed")


def cpu_seconds(work: Callable[[], int], repeats: int) -> float:
    """Returns the median CPU time of a call."""
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return statistics.median(seconds)


@click.command()
@click.option("--rows", default=2_000_000)
@click.option("--at", default=0.9, help="The position, as a share of the rows.")
@click.option("--repeats", default=3)
@click.option("--folder", type=click.Path(path_type=Path), help="Keeps the files for another run.")
def command(rows: int, at: float, repeats: int, folder: Path | None) -> None:
    """Print the CPU times."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) if folder is None else folder
        folder.mkdir(parents=True, exist_ok=True)
        start = round(rows * at) // BATCH
        before = start * BATCH / rows
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
        print(f"{rows:,} rows, position after {start:,} batches of {BATCH:,}; {repeats} repeats")
        for name in FILES:
            path = write_file(folder, name, rows)

            def read(policy: str, start: int, batches: int | None, path: Path = path) -> int:
                stream = BatchStream(path, config_of(policy), start_batch=start)
                return sum(batch.size for batch in islice(stream, batches))

            whole = cpu_seconds(lambda: read("fail", 0, None), repeats)
            checked = cpu_seconds(lambda: read("skip", start, 1), repeats)
            counted = cpu_seconds(lambda: read("fail", start, 1), repeats)
            rest = cpu_seconds(lambda: read("fail", start, None), repeats)
            share = whole * before
            print(
                f"{name}: {path.stat().st_size / 1e6:,.0f} MB; whole {whole:.2f} s; first batch, "
                f"all rows checked {checked:.2f} s ({checked / share:.1%}), counted "
                f"{counted:.3f} s ({counted / share:.1%}, {checked / counted:.0f} times as fast); "
                f"to the end {rest:.2f} s"
            )


if __name__ == "__main__":
    command()
