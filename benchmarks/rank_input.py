"""How many rows a second do 1, 2 and 4 ranks read, and how long does a resumed run read first?

Generated rows in Criteo's format, all 39 columns, as TSV and Parquet. Ranks are processes that read
and encode batches, without training. `exact`: each reads all files and encodes its slice of each
batch. `sharded`: each reads its own part of the files (`data.order`). Rates are rows of the file by
CPU seconds of the rank that needs most, which is the rate with a free core for each rank. The wall
clock runs from a barrier until the slowest rank has read all. Then the ranks read from a position
on until each has its first batch.

    python benchmarks/rank_input.py [--rows 10000000] [--ranks 1,2,4] [--at 0.9] [--repeats 3]
                                    [--shuffle] [--folder DIR]
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import click
from resume_reading import BATCH, config_of, write_file

from hotrow.trainer.data import BatchStream, Part
from hotrow.trainer.data.sharded_stream import ShardedStream
from hotrow.trainer.data.shards import shards_of

FILES = ("a.tsv", "a.parquet")


class Reading(NamedTuple):
    """What one reading took: rows, seconds of the slowest rank, CPU seconds of one and of all."""

    rows: int
    seconds: float
    most_cpu: float
    cpu: float


def read(
    path: Path, order: str, part: Part, start: int, batches: int | None, seed: int | None
) -> int:
    """Reads a rank's batches; returns their rows."""
    config = config_of("fail")
    if order == "exact":
        stream: Any = BatchStream(path, config, seed, start, part=part)
    else:
        stream = ShardedStream(path, config, shards_of([path], part.size), part, seed, start)
    own = takewhile(lambda batch: batch.size, islice(stream, batches))
    return sum(batch.size for batch in own)


def rank(barrier: Any, results: Any, *arguments: Any) -> None:
    """One rank: reads once all ranks are ready."""
    barrier.wait()
    wall, cpu = time.perf_counter(), time.process_time()
    rows = read(*arguments)
    results.put((rows, time.perf_counter() - wall, time.process_time() - cpu))


def reading(
    path: Path, order: str, ranks: int, start: int, batches: int | None, seed: int | None
) -> Reading:
    """Lets ranks read at the same time."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(ranks), context.Queue()
    processes = [
        context.Process(
            target=rank,
            args=(barrier, results, path, order, Part(number, ranks), start, batches, seed),
        )
        for number in range(ranks)
    ]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    rows, seconds, cpu = zip(*found, strict=True)
    return Reading(sum(rows), max(seconds), max(cpu), sum(cpu))


def median(path: Path, repeats: int, *arguments: Any) -> Reading:
    """Returns the medians of repeated readings."""
    found = [reading(path, *arguments) for _ in range(repeats)]
    rows, *times = zip(*found, strict=True)
    return Reading(rows[0], *map(statistics.median, times))


@click.command()
@click.option("--rows", default=10_000_000)
@click.option("--ranks", "counts", default="1,2,4", help="Numbers of ranks, 1 first.")
@click.option("--at", default=0.9, help="The position of a resumed run, as a share of the rows.")
@click.option("--repeats", default=3)
@click.option("--shuffle", is_flag=True, help="In the order of training; else in the files' order.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keeps the files for another run.")
def command(
    rows: int, counts: str, at: float, repeats: int, shuffle: bool, folder: Path | None
) -> None:
    """Print rates and times."""
    seed = 1 if shuffle else None
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) if folder is None else folder
        folder.mkdir(parents=True, exist_ok=True)
        start = round(rows * at) // BATCH
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
        print(
            f"{rows:,} rows, {'shuffled' if shuffle else 'in the order of the file'}, batches of "
            f"{BATCH:,}; {repeats} repeats"
        )
        for name in FILES:
            path = write_file(folder, name, rows)
            print(f"{name}: {path.stat().st_size / 1e6:,.0f} MB", flush=True)
            alone = None
            for ranks in map(int, counts.split(",")):
                for order in ("exact", "sharded") if ranks > 1 else ("exact",):
                    whole = median(path, repeats, order, ranks, 0, None, seed)
                    alone = whole if alone is None else alone
                    assert whole.rows == rows, f"{whole.rows} rows"
                    first = median(path, repeats, order, ranks, start, 1, seed)
                    print(
                        f"  {ranks} rank{'s' if ranks > 1 else ''}, {order}: "
                        f"{rows / whole.most_cpu / 1e6:.2f} M rows/s "
                        f"({alone.most_cpu / whole.most_cpu:.2f} of one rank), CPU of all "
                        f"{whole.cpu / rows * 1e6:.2f} us a row, wall {whole.seconds:.1f} s; "
                        f"first batch at {at:.0%}: CPU {first.most_cpu:.2f} s "
                        f"({first.most_cpu / alone.most_cpu:.1%} of one rank reading all), wall "
                        f"{first.seconds:.2f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    command()
