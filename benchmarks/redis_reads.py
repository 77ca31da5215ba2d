"""How many rows a second does one thread read from Redis, and what does a row cost there?

One Redis on this machine, over loopback TCP, with a table of random rows in float32, in pages of
several mean sizes; reads of 26 and of 2,000 random keys by one thread, after a warm-up. Processor
time of Redis and of the reader is printed side by side: where their sum is well below the wall
clock, other programs used the processors. The baseline reads the same pages by name, with
redis-py's MGET, and finds no rows in them. Bytes a row: the growth of `used_memory`.

It needs `make build-tests`.

    python benchmarks/redis_reads.py [--rows 1000000] [--dims 16,64] [--reads 400] [--json F]
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import redis
from built_readers import built_readers

from hotrow import _native
from hotrow.store.redis.layout import mean_rows_of_page
from hotrow.store.spec import RECORD_HEAD_BYTES

Keys = npt.NDArray[np.int64]
SHARDS, NUMBER = 256, 1
MEANS = {16: (4.0, 5.0, 6.0, 7.0, 8.0), 64: (2.0, 2.5, 3.0, 3.5, 4.0, 5.0)}
BATCHES = 200
KEYS_OF_A_READ = (26, 2000)


class Server:
    """A Redis of this benchmark alone."""

    def __init__(self, folder: Path, port: int) -> None:
        command = ["redis-server", "--save", "", "--port", str(port), "--dir", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.client = redis.Redis("127.0.0.1", port)
        self.address = f"127.0.0.1:{port}"
        for _ in range(500):
            try:
                self.client.ping()
                return
            except redis.ConnectionError:
                time.sleep(0.02)
        raise click.ClickException("redis-server does not answer")

    def used_bytes(self) -> int:
        """Returns the memory that it has allocated."""
        return int(self.client.info("memory")["used_memory"])

    def cpu_seconds(self) -> float:
        """Returns the processor time that it has used."""
        info = self.client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def close(self) -> None:
        """Ends the server."""
        self.client.close()
        self.process.kill()
        self.process.wait()


def write(server: Server, keys: Keys, rows: npt.NDArray[np.uint8], pages: int) -> float:
    """Writes a table and its markers; returns the seconds."""
    start = time.perf_counter()
    connection = server.client.connection_pool.get_connection()
    for _, commands, payload in _native.pack_pages(keys, rows, 1, SHARDS, NUMBER, 0, pages):
        connection.send_packed_command([payload])
        for _ in range(commands):
            connection.read_response()
    server.client.connection_pool.release(connection)
    for marker in _native.store_names(SHARDS, NUMBER)[0]:
        server.client.hset(marker, "wm", bytes(8))
    return time.perf_counter() - start


def reader_of(server: Server, dim: int, rows: int, pages: int) -> Any:
    """Returns a native reader of the table."""
    table = {"name": "t", "dim": dim, "row_type": "float32", "default_value": 0.0, "rows": rows}
    record = {"format": 1, "generation": "0" * 32, "number": NUMBER, "state": "complete"}
    record |= {"shards": SHARDS, "epoch": 0, "seq": 1, "tables": [table | {"pages": pages}]}
    topology = {"cluster": False, "nodes": [{"address": server.address}]}
    return built_readers().RedisReader(json.dumps(record), json.dumps(topology))


def page_names(keys: Keys, pages: int) -> list[bytes]:
    """Returns the distinct names of the pages of keys."""
    shards, numbers = _native.page_of_keys(keys, SHARDS, pages)
    places = sorted(set(zip(shards.tolist(), numbers.tolist(), strict=True)))
    return [_native.page_names(SHARDS, NUMBER, 0, pages, s, p, 1)[0] for s, p in places]


def timed(server: Server, calls: list[Callable[[], object]], keys: int) -> dict[str, float]:
    """Runs the calls; returns M rows/s, the times of calls, and microseconds of CPU a row."""
    for call in calls[:20]:
        call()
    spent, own, theirs = [], time.process_time(), server.cpu_seconds()
    start = time.perf_counter()
    for call in calls:
        before = time.perf_counter()
        call()
        spent.append(time.perf_counter() - before)
    wall = time.perf_counter() - start
    own, theirs = time.process_time() - own, server.cpu_seconds() - theirs
    rows = keys * len(calls)
    return {
        "mrows": rows / wall / 1e6,
        "p50_us": float(np.percentile(spent, 50)) * 1e6,
        "p99_us": float(np.percentile(spent, 99)) * 1e6,
        "redis_us_row": theirs / rows * 1e6,
        "reader_us_row": own / rows * 1e6,
        "wall_us_row": wall / rows * 1e6,
    }


def measure(server: Server, dim: int, mean: float, rows: int, reads: int) -> dict[str, Any]:
    """Writes a table with pages of a mean size and reads from it."""
    rng = np.random.default_rng(0)
    keys = rng.integers(-(2**63), 2**63, rows, dtype=np.int64)
    stored = rng.integers(0, 256, (rows, 4 * dim), dtype=np.uint8)
    pages = max(1, round(rows / mean / SHARDS))
    reader = reader_of(server, dim, rows, pages)
    before = server.used_bytes()
    seconds = write(server, keys, stored, pages)
    result: dict[str, Any] = {"dim": dim, "mean": mean, "written_mrows": rows / seconds / 1e6}
    result["bytes_row"] = (server.used_bytes() - before) / rows
    for count in KEYS_OF_A_READ:
        batches = [np.unique(rng.choice(keys, count + 9))[:count] for _ in range(BATCHES)]
        names = [page_names(batch, pages) for batch in batches[:20]]
        calls = reads * max(1, 2000 // count // 10)
        result[f"read_{count}"] = timed(
            server,
            [lambda b=batches[i % BATCHES]: reader.read([(0, b)], 10.0) for i in range(calls)],
            count,
        )
        result[f"baseline_{count}"] = timed(
            server,
            [lambda n=names[i % 20]: server.client.mget(n) for i in range(calls // 4)],
            count,
        )
    counters = reader.statistics()
    if counters["keys_found"] == 0 or counters["keys_unknown"] + counters["keys_failed"]:
        raise click.ClickException(f"not every key was found: {counters}")
    return result


@click.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--dims", default="16,64", show_default=True)
@click.option("--reads", default=400, show_default=True, help="Of 2,000 keys.")
@click.option("--port", default=16399, show_default=True, help="Of the Redis that is started.")
@click.option("--json", "to", type=click.Path(path_type=Path), help="Writes the numbers.")
def main(rows: int, dims: str, reads: int, port: int, to: Path | None) -> None:
    """Measures tables of each width with pages of each mean size."""
    load = os.getloadavg()[0]
    click.echo(f"machine {platform.machine()}, {os.cpu_count()} cores, load {load:.1f}")
    click.echo(f"rows {rows}, {SHARDS} shards, float32, one reader thread, loopback TCP")
    results = []
    for dim in map(int, dims.split(",")):
        chosen = mean_rows_of_page(RECORD_HEAD_BYTES + 4 * dim)
        click.echo(f"\ndim {dim}; stores take a mean of {chosen:.1f}")
        for mean in MEANS.get(dim, (chosen,)):
            with tempfile.TemporaryDirectory() as folder:
                server = Server(Path(folder), port)
                try:
                    results.append(measure(server, dim, mean, rows, reads))
                finally:
                    server.close()
            click.echo(row_of(results[-1]))
    if to is not None:
        to.write_text(json.dumps({"load": load, "rows": rows, "results": results}, indent=1))


def row_of(result: dict[str, Any]) -> str:
    """Returns the lines of a mean size."""
    lines = [
        f"mean {result['mean']}: {result['bytes_row']:.1f} B/row, "
        f"written {result['written_mrows']:.2f} M rows/s"
    ]
    for count in KEYS_OF_A_READ:
        read, baseline = result[f"read_{count}"], result[f"baseline_{count}"]
        lines.append(
            f"  {count:5} keys: {read['mrows']:.3f} M rows/s "
            f"({read['mrows'] / baseline['mrows']:.1f} x MGET of redis-py), "
            f"p50 {read['p50_us']:.0f} us, p99 {read['p99_us']:.0f} us; "
            f"us a row: Redis {read['redis_us_row']:.2f}, reader {read['reader_us_row']:.2f}, "
            f"wall {read['wall_us_row']:.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
