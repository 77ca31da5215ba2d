"""How many rows a second does a server's cache of hot rows give, and how many does it hit?

26 tables, keys Zipf(1.05) over the rows of each, rows in memory (`MemoryReader`), so that a miss
costs little and all rates are those of the CPU and the memory. A request has `batch` keys of each
table; each thread sends its own, the best of twelve runs counts.

    gather    a loop that copies rows whose places are known, keys spread as above: the baseline
    memory    lookups without a cache: every distinct key from the reader
    hit       lookups of cached keys, as often as they are asked for
    mix       lookups as they come, with misses, fills and evictions

Hit rates are of lookups of 3.4 million keys each, the first one cold; the oracle holds the most
frequent rows from the start.

    python benchmarks/hot_row_cache.py [--rows 10000000] [--width 16] [--shares 1,5,10] [--json F]
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
from pathlib import Path

import click

HERE = Path(__file__).parent
NATIVE = HERE.parent / "ops" / "native"
CORE = ("hot_rows", "memory_reader", "serving_lookup", "single_flight", "unique", "pooling")
CORE += ("cut_layer", "fingerprint")
HELPERS = ("row_codec", "store_layout", "dispatch", "mapping", "status")
POLICIES = {"f": "LFU", "r": "LRU"}
GOAL_MILLIONS = 40


def build(directory: Path) -> Path:
    """Compiles the program with the core's sources, and returns where it is."""
    program = directory / "hot_row_cache"
    sources = [NATIVE / "core" / f"{name}.cc" for name in CORE + HELPERS]
    flags = ["-std=c++17", "-O3", "-DNDEBUG", "-ffp-contract=off", f"-I{NATIVE}"]
    command = ["g++", *flags, str(HERE / "peers" / "hot_row_cache.cc"), *map(str, sources)]
    subprocess.run([*command, "-o", str(program), "-lfarmhash", "-lpthread"], check=True)
    return program


def show_rates(lines: list[list[str]], gather: float) -> None:
    """Prints the rates, a line a cache and batch, with their ratios to the baseline."""
    rates = {tuple(line[:-1]): float(line[-1]) for line in lines}
    threads = sorted({int(key[3]) for key in rates})
    print("\nmillion rows/s, and of the gather loop")
    print("| lookups | cache | batch |" + "".join(f" {t} threads | of it |" for t in threads))
    print("|---|---|---|" + "---|---|" * len(threads))
    for what, share, batch in dict.fromkeys(key[:3] for key in rates):
        cells = [rates[what, share, batch, str(t)] for t in threads]
        row = "".join(f" {cell:.1f} | {cell / gather:.2f} |" for cell in cells)
        print(f"| {what} | {float(share):.0%} | {batch} |{row}")


def show_hits(lines: list[list[str]]) -> None:
    """Prints the hit rates beside the oracle's."""
    print("\n| cache | policy | oracle | hit rate, cold | then | of the oracle |")
    print("|---|---|---|---|---|---|")
    for policy, share, *metrics in lines:
        oracle, cold, *warm = (float(metric) for metric in metrics)
        last = warm[-1]
        print(
            f"| {float(share):.0%} | {POLICIES[policy]} | {oracle:.3f} | {cold:.3f} "
            f"| {', '.join(f'{rate:.3f}' for rate in warm)} | {last / oracle:.3f} |"
        )


@click.command()
@click.option("--rows", default=10_000_000, show_default=True)
@click.option("--width", default=16, show_default=True)
@click.option("--row-type", default="float32", show_default=True)
@click.option("--shares", default="1,5,10", show_default=True, help="Of the rows, per cent.")
@click.option("--threads", default=min(os.cpu_count() or 1, 2), show_default=True)
@click.option("--seconds", default=0.12, show_default=True, help="Of a run.")
@click.option("--json", "to", type=click.Path(path_type=Path))
def main(
    rows: int,
    width: int,
    row_type: str,
    shares: str,
    threads: int,
    seconds: float,
    to: Path | None,
) -> None:
    """Measures and prints."""
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, load "
        f"{os.getloadavg()[0]:.1f}; {rows:,} rows of dim {width} in {row_type}, 26 tables, "
        f"Zipf(1.05), best of 12 runs of {seconds} s"
    )
    with tempfile.TemporaryDirectory() as directory:
        arguments = [rows, width, row_type, seconds, threads, shares, "fr"]
        done = subprocess.run(
            [build(Path(directory)), *map(str, arguments)],
            check=True,
            text=True,
            capture_output=True,
        )
    lines = [line.split() for line in done.stdout.splitlines()]
    plain, ahead = (float(metric) for metric in lines[0][1:])
    print(f"gather, 1 thread: {plain:.1f} million rows/s, {ahead:.1f} with prefetches")
    show_hits([line[1:] for line in lines if line[0] == "hits"])
    measured = [line for line in lines if line[0] in ("memory", "mix", "hit")]
    show_rates(measured, plain)
    slowest = min(
        (float(line[-1]) for line in measured if line[0] == "hit" and line[3] == str(threads)),
        default=0.0,
    )
    print(
        f"\nhits, {threads} threads, the slowest: {slowest:.1f} million rows/s; "
        f"goal {GOAL_MILLIONS} on 2 cores; load now {os.getloadavg()[0]:.1f}"
    )
    if to is not None:
        to.write_text(json.dumps({"gather": [plain, ahead], "lines": lines[1:]}))


if __name__ == "__main__":
    main()
