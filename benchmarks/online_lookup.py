"""What does a lookup cost a server whose rows are in Redis, and what does a request?

26 tables, Zipf(1.05) keys; one Redis that this program starts (loopback TCP, no persistence).

1. The lookup stage: the core's lookups as the server's op makes them, from a program in C++
   (peers/online_lookup.cc), with a cache of 1, 5 and 10 % of the rows. `hit`: only cached keys.
   `mix`: keys as they come, never the same ones again. The oracle holds the most frequent rows.
2. Predict, end to end: `platform serve` of a Keras model, gRPC clients in C++ with a new request
   each time, all systems in turns, medians:

    memory  a cache of all rows, all of them in it: the baseline
    cache   a cache of 5 % of the rows, the others in Redis
    graph   the same rows as variables of the graph (`standalone`), in stock TensorFlow ops
    pages   no server: hiredis, MGET of as many pages as a request of `cache` misses rows
    rows    the same with single rows, one Redis key each: the least that a row can cost there

   with two kinds of traffic: `99`: one key in a hundred is of a row that is never cached, the
   others Zipf over rows that all are; `zipf`: over all rows.

    python benchmarks/online_lookup.py [--rows 10000000] [--repeats 5] [--json F]
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import numpy as np
import redis
import serving_load
from lookup_process import HERE, build, measure_lookups, print_lookups
from lookup_traffic import Traffic, page_groups, write_names, write_requests
from peers.online_model import DENSE, HIDDEN, TABLES
from redis_process import cpu_seconds as redis_cpu_seconds
from redis_process import port_of, redis_server

from hotrow.store import open_store
from hotrow.store.generations import Generations
from hotrow.store.spec import Generation

GOAL_HITS, GOAL_RATIO = 40.0, 1.3
CACHE_SHARE = 0.05
WARM_BATCH, WARM_LOOKUPS = 2048, 12_000_000
BARE_ROWS = 2_000_000  # of `rows`
PAGE = "/monitoring/prometheus/metrics"


def export(rows: int, dim: int, folder: Path, url: str) -> str:
    """Exports the model, into Redis and as a graph; returns how long that took."""
    command = [sys.executable, "-m", "peers.online_model", rows, dim, folder, url]
    done = subprocess.run(
        list(map(str, command)), check=True, text=True, stdout=subprocess.PIPE, cwd=HERE
    )
    return ", ".join(f"{line} s" for line in done.stdout.splitlines())


class Server:
    """A `platform serve` of the benchmark."""

    def __init__(self, address: str, page: str, pids: list[int]) -> None:
        self.address, self.pids = address, pids
        self._page = page

    def counters(self) -> dict[str, float]:
        """Returns the server's counts of rows, summed over all tables."""
        sums: dict[str, float] = {}
        for line in urlopen(self._page).read().decode().splitlines():
            if line.startswith("hotrow_"):
                name = line.partition("{")[0]
                sums[name] = sums.get(name, 0.0) + float(line.rpartition(" ")[2])
        return sums


@contextmanager
def serve(folder: Path, model: str, *flags: str) -> Iterator[Server]:
    """Starts a server of a model."""
    rest = serving_load.free_port()
    config = folder / "monitoring"
    config.write_text(f'prometheus_config {{ enable: true path: "{PAGE}" }}')
    more = (f"--rest_api_port={rest}", f"--monitoring_config_file={config}", *flags)
    with serving_load.server("hotrow", folder / model, model, more) as (address, pids):
        yield Server(address, f"http://127.0.0.1:{rest}{PAGE}", pids)


def load(
    folder: Path, server: Server, requests: Path, clients: int, count: int
) -> dict[str, float]:
    """Sends requests; returns what rotating_load prints."""
    command = [folder / "rotating_load", server.address, requests, clients, count]
    done = subprocess.run(list(map(str, command)), check=True, text=True, capture_output=True)
    measured: dict[str, float] = json.loads(done.stdout)
    if measured["failures"]:
        raise click.ClickException(f"{measured['failures']:.0f} requests failed: {done.stderr}")
    return measured


def measure_server(
    folder: Path, client: redis.Redis, server: Server, requests: Path, clients: int, count: int
) -> dict[str, float]:
    """Returns metrics of requests."""
    before, cpu = server.counters(), serving_load.cpu_seconds(server.pids)
    of_redis = redis_cpu_seconds(client)
    measured = load(folder, server, requests, clients, count)
    used = serving_load.cpu_seconds(server.pids) - cpu
    redis_used = redis_cpu_seconds(client) - of_redis
    after = server.counters()
    hits, misses, fetched = (
        after.get(name, 0.0) - before.get(name, 0.0)
        for name in (
            "hotrow_cache_hits_total",
            "hotrow_cache_misses_total",
            "hotrow_fetched_rows_total",
        )
    )
    return {
        **{
            name: measured[name] for name in ("p50_us", "p99_us", "requests_per_s", "client_cpu_us")
        },
        "server_cpu_us": 1e6 * used / count,
        "redis_cpu_us": 1e6 * redis_used / count,
        "hit_rate": hits / (hits + misses) if hits else 1.0,
        "fetched": fetched / count,
    }


def measure_bare(folder: Path, client: redis.Redis, names: Path, count: int) -> dict[str, float]:
    """Returns metrics of reads without a server."""
    before = redis_cpu_seconds(client)
    command = [folder / "bare_reads", port_of(client), names, count]
    done = subprocess.run(list(map(str, command)), check=True, text=True, stdout=subprocess.PIPE)
    measured: dict[str, float] = json.loads(done.stdout)
    if measured["absent"]:
        raise click.ClickException(f"{measured['absent']:.0f} of the names have no value")
    measured["redis_cpu_us"] = 1e6 * (redis_cpu_seconds(client) - before) / count
    return measured


def warm_up(folder: Path, server: Server, traffic: Traffic, whole: bool) -> None:
    """Fills a cache: with all rows, or with those of the traffic."""
    path = folder / "warm"
    if whole:
        batch = 8192
        count = -(-traffic.rows // batch)
        ranks = np.resize(np.arange(traffic.rows), count * batch)
        write_requests(path, "m", count, batch, lambda _: ranks)
        for _ in range(2):
            load(folder, server, path, 1, count)
        return
    count = max(1, min(WARM_LOOKUPS, 40 * traffic.rows) // (TABLES * WARM_BATCH))
    write_requests(path, "m", count, WARM_BATCH, traffic.ninety_nine)
    load(folder, server, path, 2, count)
    write_requests(path, "m", count, WARM_BATCH, traffic.zipf)
    load(folder, server, path, 2, count)


def measure_requests(
    folder: Path, client: redis.Redis, generation: Generation, options: dict[str, Any]
) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the metrics of each system by kind of traffic, medians over the turns."""
    table = generation.tables[0]
    traffic, batch, total = Traffic(table.rows), options["batch"], table.rows * TABLES
    kinds = {"99": traffic.ninety_nine, "zipf": traffic.zipf}
    clients, count, repeats = options["clients"], options["requests"], options["repeats"]
    value = bytes(4 * table.dim)
    for first in range(0, BARE_ROWS, 10_000):
        client.mset({b"bare:%d" % i: value for i in range(first, first + 10_000)})
    runs: dict[str, dict[str, list[dict[str, float]]]] = {kind: {} for kind in kinds}
    with ExitStack() as stack:
        # A cache has at most twice its tables' rows; in a smaller one some sets may be full before.
        start = {
            "memory": ("m", f"--cache_rows={2 * total}"),
            "cache": ("m", f"--cache_rows={int(total * CACHE_SHARE)}"),
            "graph": ("graph",),
        }
        timeout = "--store_timeout_ms=10000"  # for large batches of the warm-up
        servers = {
            name: stack.enter_context(serve(folder, *how, *([timeout] if how[0] == "m" else [])))
            for name, how in start.items()
        }
        warm_up(folder, servers["memory"], traffic, whole=True)
        warm_up(folder, servers["cache"], traffic, whole=False)
        for turn in range(repeats):
            for kind, draw in kinds.items():
                notes = runs[kind]
                for name, server in servers.items():
                    requests = folder / "requests"
                    # New requests for each system: earlier keys may be cached.
                    write_requests(requests, start[name][0], count, batch, draw)
                    load(folder, server, requests, clients, max(1, count // 10))
                    metrics = measure_server(folder, client, server, requests, clients, count)
                    notes.setdefault(name, []).append(metrics)
                fetched = round(statistics.median(run["fetched"] for run in notes["cache"]))
                write_names(folder / "pages", page_groups(generation, traffic, fetched, count))
                numbers = np.random.default_rng(turn).integers(0, BARE_ROWS, (count, fetched))
                write_names(
                    folder / "rows", [[b"bare:%d" % i for i in group] for group in numbers.tolist()]
                )
                for name in ("pages", "rows"):
                    metrics = measure_bare(folder, client, folder / name, count)
                    notes.setdefault(name, []).append(metrics | {"fetched": fetched})
    return {
        kind: {
            name: {
                metric: statistics.median(run[metric] for run in several) for metric in several[0]
            }
            for name, several in systems.items()
        }
        for kind, systems in runs.items()
    }


COLUMNS = {
    "p50_us": "p50 us",
    "p99_us": "p99 us",
    "hit_rate": "hit rate",
    "fetched": "rows fetched",
    "server_cpu_us": "CPU us: server",
    "redis_cpu_us": "Redis",
    "client_cpu_us": "client",
}


def print_requests(results: dict[str, dict[str, dict[str, float]]]) -> None:
    """Prints a line a system, and the goals."""
    click.echo("\n| traffic | | " + " | ".join(COLUMNS.values()) + " | p50 to memory |")
    click.echo("|---" * (3 + len(COLUMNS)) + "|")
    for kind, systems in results.items():
        for name, metrics in systems.items():
            cells = [
                "" if c not in metrics else f"{metrics[c]:.{3 if c == 'hit_rate' else 0}f}"
                for c in COLUMNS
            ]
            ratio = f"{metrics['p50_us'] / systems['memory']['p50_us']:.2f}"
            click.echo(f"| {kind} | {name} | " + " | ".join(cells) + f" | {ratio} |")
    for kind, systems in results.items():
        memory, cache = systems["memory"]["p50_us"], systems["cache"]["p50_us"]
        if kind == "99":
            click.echo(
                f"\nPredict at {systems['cache']['hit_rate']:.1%} hits: {cache / memory:.2f} times "
                f"the one in memory (aimed at: at most {GOAL_RATIO})"
            )
            continue
        for name in ("pages", "rows"):
            bare = systems[name]["p50_us"]
            click.echo(
                f"Predict with a cache of {CACHE_SHARE:.0%}: the one in memory + "
                f"{(cache - memory) / bare:.2f} times hiredis with {name} "
                f"(aimed at: at most {GOAL_RATIO})"
            )


@click.command()
@click.option("--rows", default=10_000_000, show_default=True, help="Of all tables.")
@click.option("--dim", default=16, show_default=True)
@click.option("--shares", default="1,5,10", show_default=True, help="Of the rows, per cent.")
@click.option("--batches", default="1,128,1024", show_default=True, help="Of the lookup stage.")
@click.option("--batch", default=128, show_default=True, help="Of requests.")
@click.option("--threads", default=min(os.cpu_count() or 1, 2), show_default=True)
@click.option("--seconds", default=2.0, show_default=True, help="Of each case of lookups.")
@click.option("--requests", default=1000, show_default=True, help="Of each turn.")
@click.option("--clients", default=1, show_default=True)
@click.option("--repeats", default=5, show_default=True, help="Turns of requests.")
@click.option("--only", type=click.Choice(["lookups", "requests"]))
@click.option("--json", "to", type=click.Path(path_type=Path))
def main(rows: int, dim: int, only: str | None, to: Path | None, **options: Any) -> None:
    """Measures lookups and requests, and prints tables and goals."""
    began = os.getloadavg()[0]
    written: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary, redis_server() as client:
        folder = Path(temporary)
        build(folder)
        url = f"redis://127.0.0.1:{port_of(client)}"
        took = export(rows // TABLES, dim, folder, url)
        store = open_store(url)
        (generation,) = Generations(store.records).all("m")
        conditions = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {began:.1f}",
            "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "redis": client.info("server")["redis_version"] + ", loopback TCP, no persistence",
            "rows": f"{rows:,} of dim {dim} in float32, {TABLES} tables, Zipf(1.05)",
            "model": f"{TABLES * dim + DENSE}-{'-'.join(map(str, HIDDEN))}-1; exported: {took}",
            "requests": f"{options['batch']} samples, {options['clients']} clients, "
            f"{options['repeats']} turns of {options['requests']}",
            "CPUs away": serving_load.stalls(),
        }
        for name, value in conditions.items():
            click.echo(f"{name:<10} {value}")
        written["conditions"] = conditions
        if only != "requests":
            lookups, oracle = measure_lookups(folder, client, generation, store.topology(), options)
            print_lookups(lookups, oracle)
            click.echo("")
            for batch in sorted({x.batch for x in lookups}):
                slowest = min(
                    (x for x in lookups if x.what == "hit" and x.batch == batch),
                    key=lambda x: (x.threads != options["threads"], x.mrows),
                )
                click.echo(
                    f"hits, batch {batch}, {slowest.threads} threads: {slowest.mrows:.1f} M rows/s "
                    f"at least (aimed at: {GOAL_HITS:g} on 2 cores)"
                )
            written["lookups"] = [vars(x) for x in lookups]
            written["oracle"] = oracle
        store.close()
        if only != "lookups":
            results = measure_requests(folder, client, generation, options)
            print_requests(results)
            written["requests"] = results
    click.echo(f"load now {os.getloadavg()[0]:.1f}")
    if to is not None:
        to.write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
