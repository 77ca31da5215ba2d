"""Does Wide & Deep train with a table larger than memory, and what does it cost?

A deep table of 8 GB (dim 128, Adagrad, 1,024-byte lines) and a wide one of as many rows, 26
features of batch 4096 that draw from the same rows, Zipf(1.05). Once with everything in memory;
and in a process whose memory is limited to 1.6 GB by a cgroup, page cache included, with lines on
disk behind a cache of 5 % of the rows: without prefetching and with it. All must learn the same to
the bit. Then the embedding alone, beside what the disk needs for as many random reads.

    python benchmarks/larger_than_memory.py [--gigabytes 8] [--limit-gb 1.6] [--to DIR] [--json F]
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from disk_tier import build
from disk_tier import measure as measure_store
from peers.big_table import Case, write_keys
from peers.memory_cgroup import MemoryCgroup
from peers.workload import BATCH, FEATURES, SKEW

HERE = Path(__file__).parent
HEADER_BYTES, FLOAT_BYTES = 16, 4
TIMEOUT_SECONDS = 3600
STEP_GOAL = 3.0
SAMPLE = 64  # batches that are counted to warm the cache up
COLUMNS = (
    ("step_ms", "ms a step", 1),
    ("median_ms", "median", 1),
    ("slowest_ms", "slowest", 1),
    ("cpu_ms", "CPU ms", 1),
    ("hits", "hits", 0),
    ("misses", "misses", 0),
    ("ahead", "ahead", 0),
    ("stall_ms", "stall ms", 1),
    ("lines_read", "read", 0),
    ("lines_written", "written", 0),
    ("table_mb", "table MiB", 0),
    ("peak_mb", "peak MiB", 0),
)


def measure(case: Case, limit_bytes: int | None) -> dict[str, Any]:
    """Runs a case in a process of its own, under a limit of memory if one is given.

    Raises:
        OSError: this process may not make a cgroup.
        RuntimeError: the process failed.
    """
    command = [sys.executable, "-m", "peers.big_table", json.dumps(asdict(case))]

    def run(enter: Any) -> dict[str, Any]:
        done = subprocess.run(
            command,
            cwd=HERE,
            preexec_fn=enter,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    if limit_bytes is None:
        result = run(None)
        return {**result, "peak_mb": result["resident_mb"]}
    with MemoryCgroup(limit_bytes) as limited:
        result = run(limited.enter)
        peak = limited.peak_bytes()
    return {**result, "peak_mb": float("nan") if peak is None else peak / 2**20}


def floor_ms(case: Case, lines: float, to: Path) -> float:
    """Returns the median time of as many random reads from a file of this size, nothing else."""
    with tempfile.TemporaryDirectory() as directory:
        program = build(Path(directory), rocksdb=False)
        numbers = [case.rows, 2 * case.dim * FLOAT_BYTES, int(lines), 100, 20, 0, 0, 1]
        result, problem = measure_store(program, to, "floor", [float(n) for n in numbers], 1 << 30)
    if problem is not None:
        raise RuntimeError(problem)
    return float(result["median_ms"])


def verdicts(results: dict[str, dict[str, Any]], floor: float) -> list[str]:
    """Returns one sentence a goal, and the floor."""
    base = results["in memory"]
    sentences = []
    for name, row in results.items():
        if not name.startswith("on disk"):
            continue
        ratio = row["step_ms"] / base["step_ms"]
        met = "met" if ratio <= STEP_GOAL else "missed"
        same = "the same bits" if row["digest"] == base["digest"] else "OTHER BITS"
        sentences.append(f"{name}: {ratio:.2f} times the step in memory (goal 3: {met}), {same}")
    embedding = results["embedding only, on disk"]
    sentences.append(
        f"embedding only: {embedding['step_ms']:.1f} ms, of which the disk's floor for "
        f"{embedding['lines_read']:.0f} random reads is {floor:.1f} ms"
    )
    return sentences


@click.command()
@click.option("--gigabytes", default=8.0, show_default=True, help="Of the deep table's rows.")
@click.option("--limit-gb", default=1.6, show_default=True, help="Of memory, page cache included.")
@click.option("--dim", default=128, show_default=True)
@click.option("--hidden", default="256,128", show_default=True, help="Widths of the deep part.")
@click.option("--steps", default=64, show_default=True, help="Measured, after half as many.")
@click.option("--prefetch", default=4, show_default=True, help="Batches of a window.")
@click.option("--cache-share", default=0.05, show_default=True, help="Of the rows.")
@click.option("--threads", default=os.cpu_count(), show_default=True, help="Of TensorFlow.")
@click.option(
    "--to",
    default="build/peers",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="On the disk to use, with twice the room of the table.",
)
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(
    gigabytes: float,
    limit_gb: float,
    dim: int,
    hidden: str,
    steps: int,
    prefetch: int,
    cache_share: float,
    threads: int,
    to: Path,
    json_path: Path | None,
) -> None:
    """Trains in memory and on disk, prints a table; exit code 1 when a goal is missed."""
    rows = int(gigabytes * 1e9) // (HEADER_BYTES + 2 * dim * FLOAT_BYTES)
    to.mkdir(parents=True, exist_ok=True)
    widths = [int(width) for width in hidden.split(",")]
    keys = tempfile.mkdtemp(prefix="keys-", dir=to.resolve())
    memory = Case(rows, dim, widths, BATCH, steps, steps // 2, 0, 0, "", keys, False, threads)
    write_keys(memory, SAMPLE)
    disk = replace(memory, cache_rows=int(rows * cache_share), disk=str(to.resolve()))
    limit = int(limit_gb * 1e9)
    cases = {
        "in memory": (memory, None),
        "on disk, no prefetching": (disk, limit),
        f"on disk, prefetching {prefetch}": (replace(disk, prefetch=prefetch), limit),
        "embedding only, in memory": (replace(memory, embedding_only=True), None),
        "embedding only, on disk": (replace(disk, embedding_only=True), limit),
    }
    conditions: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "deep table": f"{rows} rows of dim {dim}, Adagrad",
        "wide table": f"{rows} rows of dim 1, in memory",
        "batch": f"{BATCH} x {FEATURES} features, Zipf({SKEW})",
        "hidden": hidden,
        "cache": f"{disk.cache_rows} rows",
        "limit": f"{limit_gb:g} GB of memory, page cache included",
        "steps": f"{steps}, after {steps // 2}",
        "threads": threads,
    }
    for name, value in conditions.items():
        click.echo(f"{name:<12} {value}")
    click.echo("\n" + " " * 26 + "".join(f"{title:>11}" for _, title, _ in COLUMNS))
    results: dict[str, dict[str, Any]] = {}
    for name, (case, limit_bytes) in cases.items():
        try:
            row = measure(case, limit_bytes)
        except (OSError, RuntimeError) as err:
            shutil.rmtree(keys)
            click.echo(f"{name}: {err}", err=True)
            sys.exit(1)
        results[name] = row
        cells = "".join(f"{row[key]:>11.{digits}f}" for key, _, digits in COLUMNS)
        click.echo(f"{name:<26}{cells}")
    shutil.rmtree(keys)
    floor = floor_ms(disk, results["embedding only, on disk"]["lines_read"], to)
    click.echo()
    sentences = verdicts(results, floor)
    for sentence in sentences:
        click.echo(sentence)
    if json_path is not None:
        base = results["in memory"]["step_ms"]
        written = [
            {
                "case": name,
                "metric": "step_ms",
                "value": row["step_ms"],
                "unit": "ms",
                "baseline": "in memory",
                "ratio": row["step_ms"] / base,
            }
            for name, row in results.items()
        ]
        details = {"details": results, "floor_ms": floor}
        json_path.write_text(
            json.dumps({"conditions": conditions, "results": written, **details}, indent=1)
        )
    if any("missed" in sentence or "OTHER" in sentence for sentence in sentences):
        sys.exit(1)


if __name__ == "__main__":
    main()
