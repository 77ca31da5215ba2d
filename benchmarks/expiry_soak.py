"""Does a table whose keys come and expire stay within the memory that it reports?

One table in one process. Each step trains a batch of new keys, so that all keys expire: 100 million
come and go while about a million have rows. No step may rehash, sweep or free much at once.

Memory is the growth of the process's resident set since before the first row, beside the growth of
`Table.bytes`, looked at every `--look-every` steps once the first keys have expired. A step is a
lookup that inserts and an update. Steps of the first fill count, too. On a busy machine look at the
CPU time of steps: a step that waits for a core is no slower itself.

With `--export-every N` an export takes the tombstones every N steps; without it the model was never
exported, and no tombstones are kept. `--snapshot-every N` opens and closes a full snapshot, as a
checkpoint does, and measures the time until training may go on.

    python benchmarks/expiry_soak.py [--keys 100_000_000] [--export-every 1000] [--json F]
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from array import array
from pathlib import Path
from typing import Any

import click
import numpy as np

import hotrow
from hotrow.ops.table import Table

STEP_GOAL = 20.0
MEMORY_GOAL = 0.05
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Returns the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def spread(seconds: array[float]) -> dict[str, float]:
    """Returns how evenly steps take their time."""
    milliseconds = np.array(seconds) * 1e3
    median = statistics.median(seconds) * 1e3
    return {
        "median_ms": median,
        "p99_ms": float(np.quantile(milliseconds, 0.99)),
        "slowest_ms": float(milliseconds.max()),
        "slowest_step": int(milliseconds.argmax()),
        "slowest_of_median": float(milliseconds.max()) / median,
        "steps_above_goal": int((milliseconds > STEP_GOAL * median).sum()),
    }


class Soak:
    """A table, its steps and what they took."""

    def __init__(self, batch: int, live: int, dim: int) -> None:
        # Half of a sweep passes, on average, before an old row is found.
        age, self.sweep = live // batch * 4 // 5, max(1, live // batch * 2 // 5)
        expiry = hotrow.Expiry(after_steps=age, sweep_steps=self.sweep)
        config = hotrow.TableConfig("t", dim, optimizer=hotrow.Adagrad(0.1), expiry=expiry)
        self.first_expired = age + self.sweep
        self.batch = batch
        self.gradients = np.full((batch, dim), 0.01, np.float32)
        # A small table has made the process take what does not depend on the rows.
        warm = Table(config, seed=2)
        self._train(warm, 0)
        del warm
        self.table = Table(config, seed=1)
        self.resident, self.reported = resident(), self.table.bytes
        # 8 bytes a step: lists of floats would grow the process by 0.6 MB in 10,000 steps.
        self.seconds, self.cpu_seconds = array("d"), array("d")
        self.deviations: list[float] = []
        self.snapshot_seconds: list[float] = []

    def _train(self, table: Table, step: int) -> None:
        keys = np.arange(step * self.batch, (step + 1) * self.batch, dtype=np.int64) * 7919
        table.lookup(keys, insert=True)
        table.update(keys, self.gradients)

    def step(self) -> None:
        """Trains a batch of new keys and notes the time, and the CPU time of all threads."""
        begin, cpu = time.perf_counter(), time.process_time()
        self._train(self.table, len(self.seconds))
        self.seconds.append(time.perf_counter() - begin)
        self.cpu_seconds.append(time.process_time() - cpu)

    def export(self) -> None:
        """Lets an export take the tombstones."""
        self.table.note_exported("a store", self.table.step)

    def snapshot(self) -> None:
        """Opens and closes a snapshot and notes the time of the opening."""
        begin = time.perf_counter()
        snapshot = self.table.snapshot("all")
        self.snapshot_seconds.append(time.perf_counter() - begin)
        snapshot.close()

    def look(self) -> dict[str, Any]:
        """Returns what the table holds, takes and reports."""
        taken, reported = resident() - self.resident, self.table.bytes - self.reported
        if len(self.seconds) > self.first_expired:
            self.deviations.append(taken / reported - 1)
        counts = self.table.statistics()
        return {
            "step": len(self.seconds),
            "rows": counts["rows"],
            "expired": counts["expired"],
            "tombstones": counts["tombstones"],
            "taken_mb": taken / 2**20,
            "reported_mb": reported / 2**20,
            "deviation": taken / reported - 1,
        }

    def result(self) -> dict[str, Any]:
        """Returns the summary."""
        return {
            "steps": len(self.seconds),
            "wall": spread(self.seconds),
            "cpu": spread(self.cpu_seconds),
            "worst_deviation": max(self.deviations, key=abs, default=float("nan")),
            "slowest_snapshot_ms": max(self.snapshot_seconds, default=0.0) * 1e3,
        }


@click.command()
@click.option("--keys", default=100_000_000, show_default=True, help="Keys that come and expire.")
@click.option("--live", default=1_000_000, show_default=True, help="Rows at a time, about.")
@click.option("--batch", default=10_000, show_default=True, help="New keys of a step.")
@click.option("--dim", default=16, show_default=True)
@click.option("--look-every", default=500, show_default=True, metavar="STEPS")
@click.option("--export-every", default=0, show_default=True, metavar="STEPS", help="0: never.")
@click.option("--snapshot-every", default=0, show_default=True, metavar="STEPS", help="0: never.")
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False))
def main(
    keys: int,
    live: int,
    batch: int,
    dim: int,
    look_every: int,
    export_every: int,
    snapshot_every: int,
    json_path: Path | None,
) -> None:
    """Trains new keys until so many have come, and prints memory and times."""
    click.echo(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    soak = Soak(batch, live, dim)
    click.echo(
        f"{keys:,} keys in batches of {batch:,}, dim {dim}, Adagrad, lines of "
        f"{soak.table.line_bytes} bytes, a sweep takes {soak.sweep} steps"
    )
    looks = []
    for step in range(1, keys // batch + 1):
        soak.step()
        if export_every and step % export_every == 0:
            soak.export()
        if snapshot_every and step % snapshot_every == 0:
            soak.snapshot()
        if step % look_every == 0:
            look = soak.look()
            looks.append(look)
            click.echo(
                f"step {step:,}: {look['rows']:,} rows, {look['expired']:,} expired, "
                f"{look['tombstones']:,} tombstones; {look['taken_mb']:.1f} MiB taken, "
                f"{look['reported_mb']:.1f} reported ({look['deviation']:+.1%})"
            )
    result = soak.result()
    for what, times in (("a step", result["wall"]), ("its CPU time", result["cpu"])):
        click.echo(
            f"{what}: median {times['median_ms']:.2f} ms, p99 {times['p99_ms']:.2f}, slowest "
            f"{times['slowest_ms']:.2f} (step {times['slowest_step']:,}): "
            f"{times['slowest_of_median']:.1f} times the median (aimed at {STEP_GOAL:g}), "
            f"{times['steps_above_goal']} steps above that"
        )
    click.echo(f"load {os.getloadavg()[0]:.1f} at the end")
    click.echo(
        f"memory: at most {result['worst_deviation']:+.1%} from what is reported (aimed at "
        f"{MEMORY_GOAL:.0%}); the slowest snapshot opened in {result['slowest_snapshot_ms']:.1f} ms"
    )
    if json_path is not None:
        json_path.write_text(json.dumps({"looks": looks, **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
