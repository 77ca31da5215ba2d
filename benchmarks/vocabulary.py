"""Does a table cost more a step, or more a row, when it grows?

One table of dim 16 with Adagrad grows from 1 to 64 million rows. 26 features of batch 4096 draw
from the same 100,000 hot keys, inserted first, Zipf(1.05). At each size: the step (forward,
backward, commit, given gradients), bytes a row, and the peak of the process' memory since the
start. Rows are inserted 4,096 at a time, and the slowest of these calls shows whether growth ever
stops the world. A second table that stays small is measured in turns with the first, so that a
change of the machine's speed affects both.

    python benchmarks/vocabulary.py [--millions 1,4,16,64] [--threads 1] [--json F]
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import keras
import numpy as np
import tensorflow as tf
from peers.workload import BATCH, FEATURES, SKEW, hash_keys, zipf_ranks

import hotrow

HOT_KEYS, INSERT_KEYS, BATCHES, FLOAT_BYTES = 100_000, 4096, 12, 4
STEP_GOAL, BEYOND_GOAL, PEAK_GOAL = 1.10, 24, 1.15
ROUNDS = 4  # of turns between the two tables


def memory_bytes(name: str) -> int:
    """Returns a value of /proc/self/status: VmRSS now, VmHWM at its highest."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def available_bytes() -> int:
    """Returns the memory that new processes may take."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise KeyError("MemAvailable")


def forget_peak() -> None:
    """Resets VmHWM to the process's present memory."""
    Path("/proc/self/clear_refs").write_text("5")


def give_back() -> None:
    """Returns freed memory to the system, so that what follows is counted."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


class Growing:
    """A layer with one table for all features, and its training step.

    Args:
        dim: weights of a row.
        update: the layer's mode.
    """

    def __init__(self, dim: int, update: str) -> None:
        table = hotrow.TableConfig("t", dim, optimizer=hotrow.Adagrad(), combiner="sum")
        self.layer = hotrow.DistributedEmbedding(
            [hotrow.FeatureConfig(f"f{i}", table) for i in range(FEATURES)],
            update=update,  # type: ignore[arg-type]
        )
        self.table = self.layer.tables["t"]
        self.rows = 0
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(self.layer.trainable_variables)
        rng = np.random.default_rng(7)
        gradients = {
            f"f{i}": tf.constant(1e-2 * rng.standard_normal((BATCH, dim)), tf.float32)
            for i in range(FEATURES)
        }

        @tf.function  # type: ignore[untyped-decorator]
        def step(keys: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            with tf.GradientTape() as tape:
                rows = self.layer(keys, training=True)
            variables = self.layer.trainable_variables
            given = tape.gradient(rows, variables, output_gradients=gradients)
            optimizer.apply(given, variables)
            return rows

        self.step: Callable[[Any], Any] = step

    def grow_to(self, rows: int) -> list[tuple[float, float]]:
        """Inserts new keys; returns (CPU, wall) milliseconds of each call with INSERT_KEYS."""
        times = []
        while self.rows < rows:
            keys = hash_keys(np.arange(self.rows, min(self.rows + INSERT_KEYS, rows)))
            used, started = time.process_time(), time.perf_counter()
            self.table.lookup(keys, insert=True)
            wall = time.perf_counter() - started
            times.append((1e3 * (time.process_time() - used), 1e3 * wall))
            self.rows += len(keys)
        return times

    def run(self, batches: list[dict[str, tf.Tensor]]) -> list[tuple[float, float]]:
        """Returns (CPU, wall) milliseconds of a step with each batch, after one pass."""
        for keys in batches:
            self.step(keys)
        times = []
        for keys in batches:
            used, started = time.process_time(), time.perf_counter()
            kept = self.step(keys)
            wall = time.perf_counter() - started
            times.append((1e3 * (time.process_time() - used), 1e3 * wall))
            del kept
        return times


@dataclass(frozen=True)
class Size:
    """What was measured at a size.

    Attributes:
        rows: of the table.
        cpu_ms, wall_ms: median of a step. least_cpu_ms: its minimum.
        control_ms: median CPU time of a step with the table that stays small.
        beyond: bytes a row beyond the row line, as the table counts them.
        beyond_resident: the same from the memory of the process.
        peak: highest memory of the process since the table was empty, divided by
            rows x (line + 24).
        insert_ms, slowest_insert_ms: wall time of a call that inserts 4,096 rows while growing to
            this size, median and maximum. slowest_insert_cpu_ms: the largest CPU time.
    """

    rows: int
    cpu_ms: float
    least_cpu_ms: float
    wall_ms: float
    control_ms: float
    beyond: float
    beyond_resident: float
    peak: float
    insert_ms: float
    slowest_insert_ms: float
    slowest_insert_cpu_ms: float


def hot_batches() -> list[dict[str, tf.Tensor]]:
    """Returns batches of hot keys: int64 [B] a feature."""
    ranks = zipf_ranks(np.random.default_rng(1), HOT_KEYS, BATCHES * FEATURES * BATCH)
    keys = hash_keys(np.random.default_rng(2).permutation(HOT_KEYS)[ranks])
    shaped = keys.reshape(BATCHES, FEATURES, BATCH)
    return [{f"f{i}": tf.constant(k) for i, k in enumerate(batch)} for batch in shaped]


def measure(
    table: Growing,
    control: Growing,
    batches: list[dict[str, tf.Tensor]],
    empty: int,
    inserts: list[tuple[float, float]],
) -> Size:
    """Measures a size that the table has reached."""
    line = 2 * table.table.dim * FLOAT_BYTES
    peak = memory_bytes("VmHWM") - empty
    resident = memory_bytes("VmRSS") - empty
    times: list[tuple[float, float]] = []
    controls: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        times += table.run(batches)
        controls += control.run(batches)
    return Size(
        rows=table.rows,
        cpu_ms=statistics.median(cpu for cpu, _ in times),
        least_cpu_ms=min(cpu for cpu, _ in times),
        wall_ms=statistics.median(wall for _, wall in times),
        control_ms=statistics.median(cpu for cpu, _ in controls),
        beyond=table.table.bytes / table.rows - line,
        beyond_resident=resident / table.rows - line,
        peak=peak / (table.rows * (line + BEYOND_GOAL)),
        insert_ms=statistics.median(wall for _, wall in inserts),
        slowest_insert_ms=max(wall for _, wall in inserts),
        slowest_insert_cpu_ms=max(cpu for cpu, _ in inserts),
    )


def verdicts(sizes: list[Size]) -> list[str]:
    """Returns one sentence a goal."""
    first = sizes[0]
    worst = max(s.cpu_ms / first.cpu_ms for s in sizes)
    least = max(s.least_cpu_ms / first.least_cpu_ms for s in sizes)
    corrected = max((s.cpu_ms / s.control_ms) / (first.cpu_ms / first.control_ms) for s in sizes)
    beyond = max(s.beyond for s in sizes)
    peak = max(s.peak for s in sizes)
    return [
        f"slowest step {worst:.3f} of the first size's, {corrected:.3f} corrected by the small "
        f"table's, {least:.3f} by minima (goal {STEP_GOAL})",
        f"at most {beyond:.1f} bytes a row beyond the line (goal {BEYOND_GOAL})",
        f"peak memory at most {peak:.3f} of rows x (line + {BEYOND_GOAL}) (goal {PEAK_GOAL})",
        f"slowest insert of {INSERT_KEYS} rows {max(s.slowest_insert_ms for s in sizes):.1f} ms, "
        f"{max(s.slowest_insert_cpu_ms for s in sizes):.1f} CPU",
    ]


def to_results(sizes: list[Size]) -> list[dict[str, Any]]:
    """Returns the measurements in the form that all benchmarks write."""
    units = {
        "cpu_ms": "ms",
        "least_cpu_ms": "ms",
        "wall_ms": "ms",
        "control_ms": "ms",
        "beyond": "bytes a row",
        "beyond_resident": "bytes a row",
        "peak": "of rows x (line + 24)",
        "insert_ms": "ms",
        "slowest_insert_ms": "ms",
        "slowest_insert_cpu_ms": "ms",
    }
    return [
        {
            "case": f"{size.rows} rows",
            "metric": metric,
            "value": getattr(size, metric),
            "unit": unit,
            "baseline": f"{sizes[0].rows} rows",
            "ratio": getattr(size, metric) / getattr(sizes[0], metric),
        }
        for size in sizes
        for metric, unit in units.items()
    ]


@click.command()
@click.option("--millions", default="1,4,16,64", show_default=True, help="Of rows, ascending.")
@click.option("--dim", default=16, show_default=True)
@click.option("--update", type=click.Choice(["step", "backward"]), default="step")
@click.option("--threads", default=1, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(millions: str, dim: int, update: str, threads: int, json_path: Path | None) -> None:
    """Lets a table grow and prints a line a size."""
    targets = sorted(int(float(m) * 1e6) for m in millions.split(","))
    line = 2 * dim * FLOAT_BYTES  # weights and Adagrad's accumulators
    needed = int(1.2 * (targets[-1] + targets[0]) * (line + BEYOND_GOAL))
    if needed > available_bytes():
        click.echo(
            f"{targets[-1]} rows need {needed / 2**30:.1f} GiB, {available_bytes() / 2**30:.1f} "
            "are available; stop other programs or ask for fewer with --millions",
            err=True,
        )
        sys.exit(1)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    control = Growing(dim, update)
    control.grow_to(targets[0])
    batches = hot_batches()
    control.run(batches)
    table = Growing(dim, update)
    give_back()
    forget_peak()
    empty = memory_bytes("VmRSS")
    conditions = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "features": FEATURES,
        "batch": BATCH,
        "dim": dim,
        "optimizer": "Adagrad",
        "update": update,
        "threads": threads,
        "line_bytes": line,
        "keys": f"Zipf({SKEW}) over {HOT_KEYS}",
        "unique_keys_a_batch": len(np.unique(np.stack(list(batches[0].values())))),
        "steps_a_size": ROUNDS * BATCHES,
        "empty_process_bytes": empty,
    }
    for name, value in conditions.items():
        click.echo(f"{name:<20} {value}")
    click.echo(
        f"\n{'million rows':>12}{'CPU ms':>9}{'least':>8}{'wall ms':>9}{'small':>8}"
        f"{'beyond':>8}{'(RSS)':>8}{'peak':>7}{'insert':>9}{'slowest':>9}{'CPU':>7}"
    )
    sizes = []
    for target in targets:
        inserts = table.grow_to(target)
        size = measure(table, control, batches, empty, inserts)
        sizes.append(size)
        click.echo(
            f"{size.rows / 1e6:>12.1f}{size.cpu_ms:>9.2f}{size.least_cpu_ms:>8.2f}"
            f"{size.wall_ms:>9.2f}{size.control_ms:>8.2f}{size.beyond:>8.1f}{size.beyond_resident:>8.1f}"
            f"{size.peak:>7.3f}{size.insert_ms:>9.2f}{size.slowest_insert_ms:>9.1f}"
            f"{size.slowest_insert_cpu_ms:>7.1f}"
        )
    click.echo()
    for sentence in verdicts(sizes):
        click.echo(sentence)
    if json_path is not None:
        json_path.write_text(
            json.dumps({"conditions": conditions, "results": to_results(sizes)}, indent=1)
        )


if __name__ == "__main__":
    main()
