"""Which store should hold the lines of a table larger than RAM?

Lines of 512 bytes, 8 GB of them, in a process that may use 1 GiB of memory with its page cache.
A step reads 12,000 random lines and overwrites 12,000 others: the load of a cache of hot rows on
the tier below it. The stores get the same rows in the same order, and every line read is checked:

    hotrow     LineLog of ops/native/core: a log of segments, direct I/O, Linux AIO
    lmdb       one transaction a step, NOSYNC, WRITEMAP, no read-ahead
    rocksdb    direct I/O, no WAL, no compression, sorted MultiGet, bloom filters
    file       a line's place is its offset; pread and pwrite through the page cache
    floor      only the reads, of a file that never changes: direct, 64 in flight

Before the measurement each store's lines are overwritten `--warm-turns` times (or for
`--warm-seconds`), so that the stores have garbage to collect. Compare ratios: the speed of a shared
machine's disk changes from minute to minute, so stores are measured in turns, `--repeats` times.

    python benchmarks/disk_tier.py [--gigabytes 8] [--threads 1,16] [--to DIR] [--json F]
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click
from peers.memory_cgroup import MemoryCgroup

HERE = Path(__file__).parent
NATIVE = HERE.parent / "ops" / "native"
CORE = ("line_log", "line_log_read", "line_log_clean", "read_room", "direct_file")
HELPERS = ("mapping", "slab_memory", "status")
STORES = ("floor", "hotrow", "lmdb", "rocksdb", "file")
# Stores measured with several numbers of threads; the others keep many reads in flight from one.
THREADED = ("lmdb", "rocksdb", "file")
BASELINE = "lmdb"
METRICS = {
    "median_ms": "ms",
    "p99_ms": "ms",
    "read_ms": "ms",
    "cpu_ms": "ms",
    "lines_a_second": "1/s",
    "write_amplification": "1",
    "memory_mb": "MiB",
}
TIMEOUT_SECONDS = 1800


def build(directory: Path, rocksdb: bool) -> Path:
    """Compiles the program with the core's sources, and returns where it is."""
    program = directory / "disk_tier"
    sources = [NATIVE / "core" / f"{name}.cc" for name in CORE + HELPERS]
    libraries = ["-llmdb", "-lpthread", *(["-lrocksdb"] if rocksdb else [])]
    flags = ["-std=c++17", "-O2", f"-I{NATIVE}", *(["-DHAVE_ROCKSDB"] if rocksdb else [])]
    command = ["g++", *flags, str(HERE / "peers" / "disk_tier.cc"), *map(str, sources)]
    subprocess.run([*command, "-o", str(program), *libraries], check=True)
    return program


def has_header(name: str) -> bool:
    """Returns whether the compiler finds a header."""
    source = f"#include <{name}>\n"
    done = subprocess.run(
        ["g++", "-std=c++17", "-fsyntax-only", "-xc++", "-"],
        input=source,
        text=True,
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def measure(
    program: Path, to: Path, store: str, numbers: list[float], limit_bytes: int
) -> tuple[dict[str, Any], str | None]:
    """Runs a store in a process of its own.

    Args:
        program: what `build` returned.
        to: where the store's directory is made, and removed again.
        store: its name.
        numbers: the program's arguments after the directory.
        limit_bytes: memory limit.

    Returns:
        What was measured, and what went wrong.
    """
    cgroup: AbstractContextManager[MemoryCgroup | None]
    try:
        cgroup = MemoryCgroup(limit_bytes)
    except OSError as err:
        click.echo(f"no cgroup, memory is not limited: {err}", err=True)
        cgroup = nullcontext()
    directory = Path(tempfile.mkdtemp(prefix="disk-tier-", dir=to))
    try:
        with cgroup as limited:
            done = subprocess.run(
                [str(program), store, str(directory), *map(str, numbers)],
                preexec_fn=limited.enter if limited else None,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
            peak = limited.peak_bytes() if limited else None
    except subprocess.TimeoutExpired:
        return {}, f"{store} took more than {TIMEOUT_SECONDS} s"
    finally:
        shutil.rmtree(directory)
    if done.returncode != 0:
        return {}, f"{store} ended with {done.returncode}: {done.stderr.strip()}"
    result: dict[str, Any] = json.loads(done.stdout)
    result["limited"] = limited is not None
    result["peak_mb"] = None if peak is None else peak / 2**20
    result["notes"] = done.stderr.strip()
    return result, None


def combined(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the median of each number over the repeats of a case."""
    first = runs[0]
    return {
        **first,
        **{
            name: statistics.median(run[name] for run in runs)
            for name, value in first.items()
            if isinstance(value, float | int) and not isinstance(value, bool)
        },
    }


def print_table(results: dict[tuple[str, int], list[dict[str, Any]]]) -> None:
    """Prints a line a store, with the median of its repeats."""
    click.echo(
        f"\n{'store':<10}{'threads':>8}{'ms, median':>12}{'p99':>9}{'reads':>9}{'of floor':>10}"
        f"{'CPU ms':>8}{'lines/s':>10}{'written':>9}{'own MiB':>9}{'peak MiB':>10}"
    )
    floors = results.get(("floor", 1))
    floor = combined(floors)["median_ms"] if floors else None
    for (store, threads), runs in results.items():
        row = combined(runs)
        ratio = "-" if floor is None else f"{row['median_ms'] / floor:.2f}"
        peak = "-" if row["peak_mb"] is None else f"{row['peak_mb']:.0f}"
        click.echo(
            f"{store:<10}{threads:>8}{row['median_ms']:>12.1f}{row['p99_ms']:>9.1f}"
            f"{row['read_ms']:>9.1f}{ratio:>10}{row['cpu_ms']:>8.1f}{row['lines_a_second']:>10.0f}"
            f"{row['write_amplification']:>9.2f}{row['memory_mb']:>9.0f}{peak:>10}"
        )


def to_results(results: dict[tuple[str, int], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Returns the measurements in the form that all benchmarks write."""
    bases = [combined(runs) for (store, _), runs in results.items() if store == BASELINE]
    base = min(bases, key=lambda row: float(row["median_ms"]), default=None)
    return [
        {
            "case": f"{store}, {threads} threads",
            "metric": metric,
            "value": row[metric],
            "unit": unit,
            "baseline": BASELINE if base else None,
            "ratio": row[metric] / base[metric] if base and base[metric] else None,
        }
        for (store, threads), runs in results.items()
        for row in [combined(runs)]
        for metric, unit in METRICS.items()
    ]


def chosen(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    """Splits the list of stores and checks it."""
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if name not in STORES:
            raise click.BadParameter(f"{name!r}; must be of {', '.join(STORES)}")
    return names


@click.command()
@click.option("--stores", default=",".join(STORES), show_default=True, callback=chosen)
@click.option("--gigabytes", default=8.0, show_default=True, help="Of all lines together.")
@click.option("--line-bytes", default=512, show_default=True)
@click.option("--batch", default=12_000, show_default=True, help="Lines read a step, and written.")
@click.option("--threads", default="1,16", show_default=True, help=f"Of {', '.join(THREADED)}.")
@click.option("--steps", default=200, show_default=True, help="Measured at most.")
@click.option("--seconds", default=60.0, show_default=True, help="Of measured steps at most.")
@click.option("--warm-turns", default=1.5, show_default=True)
@click.option("--warm-seconds", default=120.0, show_default=True)
@click.option("--limit-mib", default=1024, show_default=True, help="Memory of a store's process.")
@click.option("--repeats", default=2, show_default=True, help="Runs of each store, in turns.")
@click.option(
    "--to",
    default="build/peers",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="On the disk to measure, with twice the room of the lines.",
)
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(
    stores: list[str],
    gigabytes: float,
    line_bytes: int,
    batch: int,
    threads: str,
    steps: int,
    seconds: float,
    warm_turns: float,
    warm_seconds: float,
    limit_mib: int,
    repeats: int,
    to: Path,
    json_path: Path | None,
) -> None:
    """Measures the stores and prints a table; exit code 1 when something is missing."""
    lines = int(gigabytes * 1e9) // line_bytes
    conditions: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "lines": f"{lines} of {line_bytes} bytes",
        "a step": f"{batch} lines read at random, {batch} others overwritten",
        "limits": f"{steps} steps, {seconds:g} s; warm-up {warm_turns:g} turns, {warm_seconds:g} s",
        "memory": f"{limit_mib} MiB, page cache included",
        "repeats": repeats,
    }
    for name, value in conditions.items():
        click.echo(f"{name:<12} {value}")
    missing = []
    if "rocksdb" in stores and not has_header("rocksdb/db.h"):
        missing.append("rocksdb: not measured: no rocksdb/db.h (Debian: librocksdb-dev)")
        stores = [name for name in stores if name != "rocksdb"]
    to.mkdir(parents=True, exist_ok=True)
    results: dict[tuple[str, int], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        program = build(Path(directory), "rocksdb" in stores)
        for _ in range(repeats):
            for store in stores:
                counts = [int(n) for n in threads.split(",")] if store in THREADED else [1]
                for count in counts:
                    numbers: list[float] = [lines, line_bytes, batch, steps, seconds, warm_turns]
                    numbers += [warm_seconds, count]
                    run, problem = measure(program, to, store, numbers, limit_mib << 20)
                    if problem is None:
                        results.setdefault((store, count), []).append(run)
                        click.echo(f"{store}, {count}: {json.dumps(run)}")
                    else:
                        missing.append(problem)
    print_table(results)
    for problem in missing:
        click.echo(f"! {problem}", err=True)
    if json_path is not None:
        details = [
            {"store": store, "threads": count, **run}
            for (store, count), runs in results.items()
            for run in runs
        ]
        written = {"conditions": conditions, "results": to_results(results)}
        json_path.write_text(
            json.dumps({**written, "details": details, "missing": missing}, indent=1)
        )
    if missing:
        sys.exit(1)


if __name__ == "__main__":
    main()
