"""What does a checkpoint cost the training that goes on beside it?

One table, Adagrad, filled with `--rows` rows. The training thread runs steps of 26 x 4096
Zipf(1.05) keys while a checkpoint is written. A checkpoint costs the time that training stood
still, plus the extra time of the steps beside it over as many steps before and after. The output
shows it as a share of a minute, for one checkpoint a minute. The disk's own speed is measured with
plain writes of the same bytes, flushed file by file, in the same run.

    python benchmarks/checkpoint.py [--rows 4000000] [--dim 16] [--to DIR] [--json F]
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import tempfile
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

import hotrow
from hotrow.config import CheckpointConfig
from hotrow.trainer.checkpoint import CheckpointDirectory, Position
from hotrow.trainer.checkpoint.table_files import PIECE_BYTES
from hotrow.trainer.checkpoint.writer import CheckpointWriter, Outcome
from hotrow.trainer.metrics import BinaryMetrics

LOOKUPS = 26 * 4096
BATCHES = 64


@dataclass
class Case:
    """The measurements of one kind of checkpoint, one entry a checkpoint."""

    seconds: list[float] = field(default_factory=list)
    stall_seconds: list[float] = field(default_factory=list)
    lost_seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)


class Model:
    """A table without a dense part, with the interface of a model that checkpoints use."""

    def __init__(self, dim: int) -> None:
        table = hotrow.TableConfig("t", dim, optimizer=hotrow.Adagrad(0.05), combiner="sum")
        self.layer = hotrow.DistributedEmbedding(
            [hotrow.FeatureConfig("f", table)], update="backward"
        )
        self.table = self.layer.tables["t"]
        self.optimizer = keras.optimizers.SGD(0.1)
        self.optimizer.build(self.layer.trainable_variables)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
        def step(keys: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.layer({"f": keys}, training=True)["f"])
            variables = self.layer.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)

        self.step = step

    def tables(self) -> dict[str, Any]:
        """Returns the one table."""
        return {"t": self.table}

    def dense_variables(self) -> list[Any]:
        """Returns nothing."""
        return []

    def fill(self, rows: int) -> None:
        """Gives the keys below `rows` their row, in random order."""
        keys = np.random.default_rng(2).permutation(rows)
        for first in range(0, rows, 1 << 18):
            self.table.lookup(keys[first : first + (1 << 18)], insert=True)


def zipf_batches(rows: int) -> list[tf.Tensor]:
    """Returns batches of keys int64 [LOOKUPS]; a key's rank is independent of its place."""
    weights = np.arange(1, rows + 1, dtype=np.float64) ** -1.05
    cumulative = np.cumsum(weights / weights.sum())
    rng = np.random.default_rng(1)
    names = rng.permutation(rows)
    return [
        tf.constant(names[np.searchsorted(cumulative, rng.random(LOOKUPS))]) for _ in range(BATCHES)
    ]


class Trainer:
    """Runs steps; returns how long they take."""

    def __init__(self, model: Model, batches: list[tf.Tensor]) -> None:
        self.model, self.batches, self.done = model, batches, 0

    def step(self) -> None:
        """Runs one step."""
        self.model.step(self.batches[self.done % len(self.batches)])
        self.done += 1

    def seconds_a_step(self, seconds: float) -> float:
        """Runs steps for this many seconds and returns their mean time."""
        begin, first = time.perf_counter(), self.done
        while time.perf_counter() - begin < seconds:
            self.step()
        return (time.perf_counter() - begin) / (self.done - first)


def memory(name: str) -> int:
    """Returns VmRSS or VmHWM of this process in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{name}:")[1].split()[0]) << 10


@contextmanager
def peak() -> Iterator[list[int]]:
    """Yields a list; after the context it contains the context's peak resident memory."""
    Path("/proc/self/clear_refs").write_text("5")
    found: list[int] = []
    yield found
    found.append(memory("VmHWM"))


def measure_one(
    writer: CheckpointWriter, trainer: Trainer, metrics: BinaryMetrics, beside: float
) -> tuple[Outcome, float]:
    """Takes a checkpoint beside training; returns its result and the seconds lost."""
    before = trainer.seconds_a_step(beside)
    position = Position(trainer.done)
    begin, first = time.perf_counter(), trainer.done
    writer.begin(position, metrics.state)
    outcomes: list[Outcome] = []
    while not outcomes:
        trainer.step()
        outcomes = writer.outcomes()
    elapsed, steps = time.perf_counter() - begin, trainer.done - first
    after = trainer.seconds_a_step(beside)
    if outcomes[0].failure is not None:
        raise outcomes[0].failure
    return outcomes[0], elapsed - steps * (before + after) / 2


def restore(path: Path, dim: int) -> tuple[float, int, str]:
    """Restores the newest checkpoint; returns seconds, the peak of memory and a digest."""
    model = Model(dim)
    empty = memory("VmRSS")
    with peak() as most:
        begin = time.perf_counter()
        CheckpointDirectory(path, 1).restore_newest(model, model.optimizer, report=print)  # type: ignore[arg-type]
        seconds = time.perf_counter() - begin
    return seconds, most[0] - empty, model.table.digest()


def disk_megabytes_a_second(folder: Path, size: int) -> float:
    """Returns the speed of plain writes of random bytes, flushed file by file."""
    data = np.random.default_rng(0).bytes(PIECE_BYTES)
    begin, left, number = time.perf_counter(), size, 0
    while left > 0:
        with (folder / f"plain-{number}").open("wb", buffering=0) as file:
            left -= file.write(memoryview(data)[: min(left, len(data))])
            os.fsync(file.fileno())
        number += 1
    return size / (time.perf_counter() - begin) / 1e6


def hash_megabytes_a_second() -> float:
    """Returns the speed of SHA-256 in one thread."""
    data = bytes(64 << 20)
    begin = time.perf_counter()
    hashlib.sha256(data)
    return len(data) / (time.perf_counter() - begin) / 1e6


@click.command()
@click.option("--rows", default=4_000_000, show_default=True)
@click.option("--dim", default=16, show_default=True)
@click.option("--repeats", default=3, show_default=True, help="Checkpoints of each kind.")
@click.option("--between", default=15.0, show_default=True, help="Seconds of steps before each.")
@click.option("--to", type=click.Path(path_type=Path), help="Where to write.  [default: /tmp]")
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(
    rows: int, dim: int, repeats: int, between: float, to: Path | None, json_path: Path | None
) -> None:
    """Measures checkpoints and prints a table."""
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=to))
    try:
        _measure(rows, dim, repeats, between, folder, json_path)
    finally:
        shutil.rmtree(folder)


def _measure(
    rows: int, dim: int, repeats: int, between: float, folder: Path, json_path: Path | None
) -> None:
    batches = zipf_batches(rows)
    model = Model(dim)
    model.step(batches[0])
    empty = memory("VmRSS")
    model.fill(rows)
    trainer = Trainer(model, batches)
    trainer.seconds_a_step(2)
    filled = memory("VmRSS")
    config = CheckpointConfig(full_every=repeats + 1, keep=2 * repeats + 2)
    directory = CheckpointDirectory(folder / "checkpoints", config.keep)
    writer = CheckpointWriter(directory, config, model, model.optimizer, print)  # type: ignore[arg-type]
    metrics = BinaryMetrics()
    plain = disk_megabytes_a_second(folder, model.table.size * (model.table.line_bytes + 20))
    conditions = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "tensorflow": tf.__version__,
        "rows": model.table.size,
        "dim": dim,
        "optimizer": "Adagrad",
        "line_bytes": model.table.line_bytes,
        "table_bytes": model.table.bytes,
        "lookups_a_step": LOOKUPS,
        "unique_keys_a_step": len(np.unique(batches[0].numpy())),
        "seconds_between": between,
        "repeats": repeats,
    }
    for name, value in conditions.items():
        print(f"{name:<20} {value}")
    cases = {"full": Case(), "increment": Case()}
    beside = between / 3
    peaks = []
    for number in range(2 * (repeats + 1)):
        kind = "increment" if number % (repeats + 1) else "full"
        trainer.seconds_a_step(between - beside)
        with peak() as most:
            outcome, lost = measure_one(writer, trainer, metrics, beside)
        peaks.append(most[0])
        case = cases[outcome.kind]
        case.seconds.append(outcome.seconds)
        case.stall_seconds.append(outcome.stall_seconds)
        case.lost_seconds.append(lost)
        case.megabytes.append(outcome.bytes / 1e6)
        print(
            f"  {outcome.kind:<10} {outcome.bytes / 1e6:>8.0f} MB {outcome.seconds:>7.2f} s, "
            f"stall {1e3 * outcome.stall_seconds:>6.1f} ms, lost {lost:>6.2f} s"
        )
        if outcome.kind != kind:
            raise SystemExit(f"expected a checkpoint that is {kind}")
    table = model.table.bytes
    digest = model.table.digest()
    writer.finish(Position(trainer.done), metrics.state)
    # A process of its own, since freed memory does not go back to the system at once.
    with multiprocessing.get_context("spawn").Pool(1) as process:
        restored, most_restoring, found = process.apply(restore, (directory.path, dim))
    assert found == digest
    results = []

    def add(case: str, metric: str, value: float, unit: str, baseline: str, ratio: Any) -> None:
        results.append(
            {
                "case": case,
                "metric": metric,
                "value": value,
                "unit": unit,
                "baseline": baseline,
                "ratio": ratio,
            }
        )
        shown = "" if ratio is None else f"{ratio:>8.3f} of {baseline}"
        print(f"{case:<12} {metric:<24} {value:>12.4g} {unit:<6} {shown}")

    print()
    for name, measured in cases.items():
        seconds, size = statistics.median(measured.seconds), statistics.median(measured.megabytes)
        add(name, "size", size, "MB", "table", size * 1e6 / table)
        add(name, "seconds", seconds, "s", "", None)
        add(name, "speed", size / seconds, "MB/s", "plain writes", size / seconds / plain)
        stall = statistics.median(measured.stall_seconds)
        add(name, "stall", stall, "s", "a minute", stall / 60)
        lost = statistics.median(measured.lost_seconds)
        add(name, "lost_training_time", lost, "s", "a minute", lost / 60)
    add("disk", "plain_writes", plain, "MB/s", "", None)
    add("sha256", "speed", hash_megabytes_a_second(), "MB/s", "", None)
    add("memory", "table", table / 1e6, "MB", "", None)
    add("memory", "training", (filled - empty) / 1e6, "MB", "table", (filled - empty) / table)
    most = max(peaks) - empty
    add("memory", "peak_while_writing", most / 1e6, "MB", "table", most / table)
    added = max(peaks) - filled
    add("memory", "added_by_writing", added / 1e6, "MB", "table", added / table)
    add("restore", "seconds", restored, "s", "", None)
    add(
        "memory",
        "peak_while_restoring",
        most_restoring / 1e6,
        "MB",
        "table",
        most_restoring / table,
    )
    if json_path is not None:
        json_path.write_text(json.dumps({"conditions": conditions, "results": results}, indent=1))


if __name__ == "__main__":
    main()
