"""Lookups of the serving core in a process of their own: the built program, its runs, its table."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import redis

from hotrow import _native
from hotrow.store.spec import Generation

HERE = Path(__file__).parent


PACKAGE = Path(_native.__file__).parent


def build(folder: Path) -> None:
    """Compiles the programs."""
    serving = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"],
        stdout=subprocess.PIPE,
        check=True,
    )
    core = [f"-I{HERE.parent / 'ops' / 'native'}", PACKAGE / "libhotrow_core.so"]
    for name, flags in {
        "online_lookup": [*core, f"-Wl,-rpath,{PACKAGE}", "-lpthread"],
        "bare_reads": ["-lhiredis"],
        "rotating_load": serving.stdout.decode().split(),
    }.items():
        source = HERE / "peers" / f"{name}.cc"
        command = ["g++", "-std=c++17", "-O3", source, *flags, "-o", folder / name]
        subprocess.run(command, check=True)


@dataclass(frozen=True)
class Lookups:
    """Metrics of the lookup stage, as peers/online_lookup.cc prints them."""

    what: str
    share: float
    batch: int
    threads: int
    mrows: float
    p50_us: float
    p99_us: float
    hit_rate: float
    fetched: float
    cpu_us: float
    redis_cpu_us: float


def measure_lookups(
    folder: Path,
    client: redis.Redis,
    generation: Generation,
    topology: Any,
    options: dict[str, Any],
) -> tuple[list[Lookups], dict[float, float]]:
    """Returns metrics of lookups, and the oracle's hit rate by share."""
    record, nodes = folder / "record.json", folder / "topology.json"
    record.write_text(generation.model_dump_json())
    nodes.write_text(json.dumps(topology))
    table = generation.tables[0]
    pid = client.info("server")["process_id"]
    command = [folder / "online_lookup", record, nodes, table.rows, table.dim]
    command += [options["shares"], options["batches"], options["threads"], options["seconds"], pid]
    done = subprocess.run(list(map(str, command)), check=True, text=True, stdout=subprocess.PIPE)
    lookups, oracle = [], {}
    for kind, *words in map(str.split, done.stdout.splitlines()):
        if kind == "oracle":
            oracle[float(words[0])] = float(words[1])
            continue
        share, batch, threads, *metrics = words[1:]
        lookups.append(
            Lookups(words[0], float(share), int(batch), int(threads), *map(float, metrics))
        )
    return lookups, oracle


def print_lookups(lookups: list[Lookups], oracle: dict[float, float]) -> None:
    """Prints a line a cache, batch and number of threads."""
    click.echo(
        "\n| lookups | cache | batch | threads | M rows/s | p50 us | p99 us | hit rate | oracle "
        "| rows fetched | us a row fetched | CPU us: own | Redis |\n" + "|---" * 13 + "|"
    )
    for x in lookups:
        # The whole cost of misses: hits cost almost nothing in these lookups.
        a_row = f"{x.p50_us / x.fetched:.2f}" if x.fetched >= 1 else ""
        hits = f"{x.hit_rate:.3f} | {oracle[x.share]:.3f}" if x.what == "mix" else "1 | "
        click.echo(
            f"| {x.what} | {x.share:.0%} | {x.batch} | {x.threads} | {x.mrows:.2f} "
            f"| {x.p50_us:.0f} | {x.p99_us:.0f} | {hits} | {x.fetched:.0f} | {a_row} "
            f"| {x.cpu_us:.0f} | {x.redis_cpu_us:.0f} |"
        )
