"""What does TLS cost a read of rows? The native reader over plain text and over TLS, in turns.

A Redis server on loopback that listens for both, with the same rows. Rows of 16 float32, reads of
26 and of 2,000 keys, by one thread and by four; every row is compared. CPU is of this process and
of Redis together; compare ratios, since other programs may use the machine.

It needs `make build-tests`, redis-server and openssl.

    python benchmarks/redis_tls.py [--rows 200000] [--seconds 2] [--repeats 5]
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import click
import redis
from built_readers import built_readers
from redis_process import cpu_seconds

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from free_ports import free_port
from redis_servers.standalone import RedisServer
from redis_servers.tls import access_with
from rows_in_redis import RowsInRedis, topology_of_one

KINDS = ("plain", "TLS")


def readers(server: RedisServer, plain_port: int, rows: RowsInRedis) -> dict[str, Any]:
    """Returns a reader of each kind."""
    assert server.certificates is not None
    access = access_with(server.certificates)
    files = {"ca": access.ca_file, "cert": access.cert_file, "key": access.key_file}
    secret = json.loads(topology_of_one(server.address)) | {"tls": files}
    topologies = (topology_of_one(f"127.0.0.1:{plain_port}"), json.dumps(secret))
    made = [built_readers().RedisReader(rows.record, topology) for topology in topologies]
    return dict(zip(KINDS, made, strict=True))


def measure(
    reader: Any, requests: Any, threads: int, seconds: float, client: redis.Redis
) -> tuple[float, float, float]:
    """Returns reads a second, microseconds of CPU a read, and the median read in microseconds."""
    times: list[float] = []
    before = time.process_time() + cpu_seconds(client)
    start = time.perf_counter()

    def read() -> None:
        while (begun := time.perf_counter()) < start + seconds:
            _, code, message = reader.read(requests, 5.0)
            assert code == 0, message
            times.append(time.perf_counter() - begun)

    running = [threading.Thread(target=read) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    wall = time.perf_counter() - start
    spent = time.process_time() + cpu_seconds(client) - before
    return len(times) / wall, spent / len(times) * 1e6, statistics.median(times) * 1e6


@click.command(help=__doc__, context_settings={"max_content_width": 100})
@click.option("--rows", default=200_000, show_default=True)
@click.option("--seconds", default=2.0, show_default=True, help="Of each measurement.")
@click.option("--repeats", default=5, show_default=True)
def main(rows: int, seconds: float, repeats: int) -> None:
    """Prints a line for each size of a read and number of threads."""
    stored = RowsInRedis([16], count=rows, pages=max(1, rows // 16 // 12))
    plain_port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        settings = {"port": plain_port, "tls-auth-clients": "yes"}
        server = RedisServer(Path(folder) / "redis", tls=True, settings=settings)
        try:
            with server.client() as client:
                stored.write(lambda slot: client)
                both = readers(server, plain_port, stored)
                for reader in both.values():
                    stored.check_all_read(reader)
                for keys in (26, 2000):
                    requests = stored.asked(known=keys, unknown=0)
                    for threads in (1, 4):
                        print_line(both, requests, keys, threads, seconds, repeats, client)
        finally:
            server.kill()


def print_line(
    both: dict[str, Any],
    requests: Any,
    keys: int,
    threads: int,
    seconds: float,
    repeats: int,
    client: redis.Redis,
) -> None:
    """Measures both kinds in turns and prints their medians."""
    found: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in KINDS}
    for _ in range(repeats):
        for kind, reader in both.items():
            found[kind].append(measure(reader, requests, threads, seconds, client))
    rate, cpu, p50 = (
        {kind: statistics.median(run[of] for run in runs) for kind, runs in found.items()}
        for of in range(3)
    )
    turns = list(zip(*found.values(), strict=True))
    ratios = [statistics.median(b[of] / a[of] for a, b in turns) for of in range(3)]
    for kind in KINDS:
        print(
            f"{keys:5d} keys, {threads} threads, {kind:5s}: {rate[kind]:8,.0f} reads/s, "
            f"{rate[kind] * keys / 1e6:.2f} M rows/s, CPU {cpu[kind]:7,.0f} us, "
            f"p50 {p50[kind]:7,.0f} us"
        )
    print(
        f"      TLS / plain: rate {ratios[0]:.2f}, CPU {ratios[1]:.2f}, p50 {ratios[2]:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
