"""Does training stand still while large tables are written to a slow disk every minute?

26 tables of 400 MB of rows each, Adagrad, dim 16. Steps of 26 x 4096 lookups go on, with keys of a
power law (`--skew`; 0: uniform, the hardest case) over all rows. The product's own writer takes a
checkpoint a minute. A FUSE mount of Debian's `bindfs --write-rate` holds the disk to `--disk-rate`
megabytes a second; 0 takes the disk as it is.

    stall        the time that training stood still: snapshots, and waits for the writer. Goal: 5 %
    slower       the further time that steps took beside a write, over steps without one
    given up     checkpoints that failed, or fell due during a write and were skipped. Goal: none
    memory       the peak of resident memory over that of training alone. Goal: the budget of the
                 snapshots, 10 % of the tables. Beside it: 3 bits a row while a snapshot is open,
                 and a piece of 64 MB

    python benchmarks/checkpoint_stall.py [--megabytes 400] [--minutes 6] [--to DIR] [--json F]

It needs 1.3 times the tables' memory, and 2.1 times their bytes on the disk.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import keras
import numpy as np
import tensorflow as tf
from checkpoint import disk_megabytes_a_second, memory, peak

import hotrow
from hotrow.config import CheckpointConfig
from hotrow.trainer.checkpoint import CheckpointDirectory, Position
from hotrow.trainer.checkpoint.writer import CheckpointWriter, Outcome
from hotrow.trainer.metrics import BinaryMetrics

BATCH = 4096
HEADER_BYTES = 16
LEAST_BUDGET = 64 << 20
GOAL_STALL = 0.05
FILLED_AT_ONCE = 1 << 18


class Model:
    """Tables without a dense part, with the interface of a model that checkpoints use."""

    def __init__(self, tables: int, dim: int) -> None:
        configs = [
            hotrow.TableConfig(f"t{i}", dim, optimizer=hotrow.Adagrad(0.05), combiner="sum")
            for i in range(tables)
        ]
        features = [hotrow.FeatureConfig(config.name, config) for config in configs]
        self.layer = hotrow.DistributedEmbedding(features, update="backward")
        self.optimizer = keras.optimizers.SGD(0.1)
        self.optimizer.build(self.layer.trainable_variables)

        @tf.function(input_signature=[tf.TensorSpec([tables, BATCH], tf.int64)], autograph=False)
        def step(keys: tf.Tensor) -> None:
            columns = {config.name: keys[i] for i, config in enumerate(configs)}
            with tf.GradientTape() as tape:
                rows = self.layer(columns, training=True)
                loss = tf.add_n([tf.reduce_mean(rows[config.name]) for config in configs])
            variables = self.layer.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)

        self.step = step

    def tables(self) -> dict[str, Any]:
        """Returns the tables by name."""
        return dict(self.layer.tables)

    def dense_variables(self) -> list[Any]:
        """Returns nothing."""
        return []

    def fill(self, rows: int) -> None:
        """Gives the keys below `rows` their row in every table, in random order."""
        keys = np.random.default_rng(2).permutation(rows)
        for table in self.layer.tables.values():
            for first in range(0, rows, FILLED_AT_ONCE):
                table.lookup(keys[first : first + FILLED_AT_ONCE], insert=True)


class Keys:
    """Draws keys int64 [tables, BATCH] below `rows`; a small key is a hot one."""

    def __init__(self, tables: int, rows: int, skew: float) -> None:
        self._shape, self._rows, self._skew = (tables, BATCH), rows, skew
        self._random = np.random.default_rng(1)

    def draw(self) -> tf.Tensor:
        """Returns the keys of a step, by the inverse of the continuous power law."""
        uniform = self._random.random(self._shape)
        power = 1.0 - self._skew
        if self._skew == 0:
            ranks = uniform * self._rows
        elif power == 0:
            ranks = (self._rows + 1.0) ** uniform - 1
        else:
            ranks = (((self._rows + 1.0) ** power - 1) * uniform + 1) ** (1 / power) - 1
        return tf.constant(np.minimum(ranks.astype(np.int64), self._rows - 1))


@dataclass
class Run:
    """What happened while checkpoints were written.

    Attributes:
        seconds: of the whole run.
        outcomes: of checkpoints, in their order.
        skipped: lines about checkpoints that were skipped or failed.
        busy: seconds during which a checkpoint was being written.
        busy_steps: steps in this time.
        steps: steps of the whole run.
    """

    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    busy: float = 0.0
    busy_steps: int = 0
    steps: int = 0


def train(model: Model, keys: Keys, seconds: float) -> float:
    """Runs steps for this long and returns the mean seconds of one."""
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        model.step(keys.draw())
        steps += 1
    return (time.perf_counter() - begin) / steps


def train_with_checkpoints(
    model: Model, keys: Keys, directory: CheckpointDirectory, config: CheckpointConfig, minutes: int
) -> Run:
    """Trains while a checkpoint is taken every `config.every_seconds`, `minutes` of them."""
    run = Run()
    writer = CheckpointWriter(directory, config, model, model.optimizer, run.skipped.append)  # type: ignore[arg-type]
    metrics = BinaryMetrics()
    assert config.every_seconds is not None
    begin = last = time.perf_counter()
    writing = False
    while len(run.outcomes) < minutes:
        model.step(keys.draw())
        run.steps += 1
        run.busy_steps += writing
        found = writer.outcomes()
        if writer.due(run.steps):
            writer.begin(Position(run.steps), metrics.state)
            writing = True
        now = time.perf_counter()
        run.busy += writing * (now - last)
        last = now
        for outcome in found:
            writing = False
            run.outcomes.append(outcome)
            show(outcome, now - begin)
    run.seconds = time.perf_counter() - begin
    writer.close()
    return run


def show(outcome: Outcome, at: float) -> None:
    """Prints one checkpoint."""
    end = "" if outcome.failure is None else f", failed: {outcome.failure}"
    print(
        f"  {at:>6.0f} s: {outcome.kind:<9} {outcome.bytes / 1e6:>8.0f} MB in "
        f"{outcome.seconds:>6.2f} s, stall {1e3 * outcome.stall_seconds:>8.1f} ms{end}",
        flush=True,
    )


@contextmanager
def disk_of(folder: Path, megabytes_a_second: int) -> Iterator[Path]:
    """Yields a directory whose writes are held to a rate; 0: as they are."""
    back, front = folder / "disk", folder / "limited"
    back.mkdir()
    if megabytes_a_second == 0:
        yield back
        return
    if shutil.which("bindfs") is None or not os.access("/dev/fuse", os.W_OK):
        raise click.ClickException(
            "--disk-rate needs bindfs and /dev/fuse: apt-get install bindfs, or --disk-rate 0"
        )
    front.mkdir()
    # FUSE 2 writes 4 KiB at a time otherwise.
    options = ["-o", "big_writes", f"--write-rate={megabytes_a_second * 1_000_000}"]
    command = ["bindfs", *options, str(back), str(front)]
    subprocess.run(command, check=True)
    try:
        yield front
    finally:
        subprocess.run(["fusermount", "-u", str(front)], check=True)


@contextmanager
def sampled_memory() -> Iterator[list[int]]:
    """Yields a list that gets the resident memory ten times a second."""
    samples: list[int] = []
    done = threading.Event()

    def sample() -> None:
        while not done.wait(0.1):
            samples.append(memory("VmRSS"))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


@click.command()
@click.option("--tables", default=26, show_default=True)
@click.option("--megabytes", default=400, show_default=True, help="Of rows, of each table.")
@click.option("--dim", default=16, show_default=True)
@click.option("--skew", default=1.05, show_default=True, help="0: uniform keys.")
@click.option("--every", default=60.0, show_default=True, help="Seconds between checkpoints.")
@click.option("--minutes", default=6, show_default=True, help="Checkpoints.")
@click.option("--full-every", default=1, show_default=True)
@click.option("--disk-rate", default=300, show_default=True, help="MB a second; 0: no limit.")
@click.option("--to", type=click.Path(path_type=Path), help="Where to write.  [default: /tmp]")
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(json_path: Path | None, to: Path | None, **options: Any) -> None:
    """Measures and prints a table."""
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-stall-", dir=to))
    try:
        with disk_of(folder, options["disk_rate"]) as disk:
            report = measure(disk, **options)
    finally:
        shutil.rmtree(folder)
    if json_path is not None:
        json_path.write_text(json.dumps(report, indent=1))


def measure(
    disk: Path,
    tables: int,
    megabytes: int,
    dim: int,
    skew: float,
    every: float,
    minutes: int,
    full_every: int,
    disk_rate: int,
) -> dict[str, Any]:
    """Runs the benchmark on a disk and returns conditions and results."""
    model = Model(tables, dim)
    [line_bytes] = {table.line_bytes for table in model.tables().values()}
    stride = (HEADER_BYTES + line_bytes + 7) // 8 * 8
    rows = megabytes * 1_000_000 // stride
    keys = Keys(tables, rows, skew)
    model.fill(rows)
    budget = max(LEAST_BUDGET, tables * rows * stride // 10)
    plain = disk_megabytes_a_second(disk, min(tables * megabytes, 1200) * 1_000_000)
    for path in disk.glob("plain-*"):
        path.unlink()
    conditions = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "tensorflow": tf.__version__,
        "tables": f"{tables} of {rows:,} rows, dim {dim}, Adagrad",
        "rows_mb": tables * rows * stride / 1e6,
        "tables_mb": sum(table.bytes for table in model.tables().values()) / 1e6,
        "lookups_a_step": tables * BATCH,
        "skew": skew,
        "checkpoint_every_seconds": every,
        "full_every": full_every,
        "disk_limit_mb_a_second": disk_rate or None,
        "plain_writes_mb_a_second": plain,
        "budget_mb": budget / 1e6,
    }
    for name, value in conditions.items():
        print(f"{name:<26} {value}", flush=True)
    train(model, keys, every / 6)  # warms up
    alone = train(model, keys, every / 2)
    resident = memory("VmRSS")
    config = CheckpointConfig(
        every_steps=10**9, every_seconds=every, keep=1 if full_every == 1 else 2,
        full_every=full_every,
    )  # fmt: skip
    directory = CheckpointDirectory(disk / "checkpoints", config.keep)
    with peak() as most, sampled_memory() as samples:
        run = train_with_checkpoints(model, keys, directory, config, minutes)
    results = results_of(run, alone, most[0] - resident, budget)
    results["memory_median_mb"] = (float(np.median(samples)) - resident) / 1e6
    print()
    for name, value in results.items():
        print(f"{name:<26} {value:.4g}")
    print(
        f"goals: stall {results['stall_share']:.2%} (at most {GOAL_STALL:.0%}), given up "
        f"{results['given_up']} (none), memory {results['memory_added_mb']:,.0f} MB (at most "
        f"{budget / 1e6:,.0f})"
    )
    return {"conditions": conditions, "results": results}


def results_of(run: Run, alone: float, added: int, budget: int) -> dict[str, float]:
    """Returns the measurements.

    Args:
        run: with checkpoints.
        alone: seconds of a step without a checkpoint.
        added: bytes of memory over those of training alone.
        budget: bytes that copies of rows may take.
    """
    stall = sum(outcome.stall_seconds for outcome in run.outcomes)
    failed = sum(outcome.failure is not None for outcome in run.outcomes)
    skipped = sum("skipped" in line for line in run.skipped)
    slower = run.busy - stall - run.busy_steps * alone
    return {
        "seconds": run.seconds,
        "checkpoints": len(run.outcomes) - failed,
        "given_up": failed + skipped,
        "seconds_of_one": float(np.median([outcome.seconds for outcome in run.outcomes])),
        "mb_of_one": float(np.median([outcome.bytes for outcome in run.outcomes])) / 1e6,
        "step_ms_alone": 1e3 * alone,
        "stall_seconds": stall,
        "longest_stall_seconds": max(outcome.stall_seconds for outcome in run.outcomes),
        "stall_share": stall / run.seconds,
        "slower_share": slower / run.seconds,
        "memory_added_mb": added / 1e6,
        "memory_over_budget": added / budget,
    }


if __name__ == "__main__":
    main()
