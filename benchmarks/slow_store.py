"""Do requests whose rows are all in memory notice that the store is slow?

A model of 26 tables with its rows in Redis, behind a proxy that holds every answer back. One stream
of requests hits the cache with all of its keys, at a steady rate, from clients in C++; latencies
count from when a request was due. A second stream, on the same model, misses with all of its keys:
one row of each table, other ones each time. It never waits for answers, so that a slow store has
many requests under way.

    alone   the hits without the misses: the baseline
    0, 5, 50, 500   milliseconds that the store takes longer, beside the misses

Goal: p99 of the hits at 500 ms at most 1.2 times that alone. The usual p99 is the median of the
p99s of windows of a tenth of a second: less of the machine, more of the server.

    python benchmarks/slow_store.py [--delays 0,5,50,500] [--json F]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import platform
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import grpc
import serving_load
from lookup_process import build as build_lookups
from lookup_traffic import Traffic, write_requests
from online_lookup import Server, export, load, serve
from redis_process import port_of, redis_server

GOAL = 1.2
HOT_ROWS = 500
MISSES = 20_000  # requests, all different
TIMEOUT_MS = 5000
PATIENCE = 10.0


def hold_back(port: int, redis_port: int, delay: Any) -> None:
    """Forwards connections to Redis; answers arrive `delay.value` seconds late."""

    async def forward(reader: Any, writer: Any, late: bool) -> None:
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def send() -> None:
            while True:
                at, data = await due.get()
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                writer.write(data)

        sender = asyncio.create_task(send())
        try:
            while data := await reader.read(1 << 16):
                due.put_nowait((time.monotonic() + (delay.value if late else 0.0), data))
        except ConnectionError:
            pass
        finally:
            sender.cancel()
            writer.close()

    async def connect(reader: Any, writer: Any) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", redis_port)
        await asyncio.gather(forward(reader, to_writer, False), forward(to_reader, writer, True))

    async def run() -> None:
        listening = await asyncio.start_server(connect, "127.0.0.1", port)
        await listening.serve_forever()

    asyncio.run(run())


def miss(address: str, path: Path, rate: float, counts: Any) -> None:
    """Sends each request of a file once, at a steady rate; counts what was answered and refused."""

    async def run() -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            predict = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
            under_way: set[asyncio.Task[None]] = set()

            async def ask(request: bytes) -> None:
                try:
                    await predict(request, timeout=PATIENCE)
                    counts[0] += 1
                except grpc.aio.AioRpcError:
                    counts[1] += 1

            due = time.monotonic()
            with path.open("rb") as file:
                while head := file.read(8):
                    task = asyncio.create_task(ask(file.read(struct.unpack("<Q", head)[0])))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                    due += 1 / rate
                    await asyncio.sleep(max(0.0, due - time.monotonic()))

    asyncio.run(run())


@contextlib.contextmanager
def process(work: Any, *arguments: Any) -> Iterator[None]:
    """Runs a function in a process of its own meanwhile."""
    running = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    running.start()
    try:
        yield
    finally:
        running.kill()
        running.join()


def warm_up(folder: Path, server: Server, hot: Path) -> None:
    """Has all rows of the hits cached, and often read."""
    draw = Traffic(HOT_ROWS)
    path = folder / "warm"
    write_requests(path, "m", 40, 1024, lambda count: draw.zipf(count))
    for _ in range(3):
        load(folder, server, path, 1, 40)
    before = server.counters()
    load(folder, server, hot, 1, 200)
    missed = server.counters()["hotrow_fetched_rows_total"] - before["hotrow_fetched_rows_total"]
    if missed:
        raise click.ClickException(f"{missed:.0f} rows of the hits are not cached")


def first_of(path: Path, to: Path) -> Path:
    """Writes the first request of a file as paced_load reads it."""
    with path.open("rb") as file:
        to.write_bytes(file.read(struct.unpack("<Q", file.read(8))[0]))
    return to


@click.command()
@click.option("--rows", default=200_000, show_default=True, help="Of each table.")
@click.option("--dim", default=16, show_default=True)
@click.option("--delays", default="0,5,50,500", show_default=True, help="Milliseconds.")
@click.option("--hit-rate", default=300.0, show_default=True, help="Requests a second.")
@click.option("--miss-rate", default=60.0, show_default=True, help="Requests a second.")
@click.option("--seconds", default=10.0, show_default=True)
@click.option("--repeats", default=3, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False))
def main(
    rows: int,
    dim: int,
    delays: str,
    hit_rate: float,
    miss_rate: float,
    seconds: float,
    repeats: int,
    json_path: Path | None,
) -> None:
    """Measures and prints a table."""
    spawn = multiprocessing.get_context("spawn")
    delay = spawn.Value("d", 0.0, lock=False)
    results: list[dict[str, float]] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        build_lookups(folder)
        serving_load.build(folder)
        redis = stack.enter_context(redis_server())
        url = f"redis://127.0.0.1:{port_of(redis)}/0"
        print(f"export: {export(rows, dim, folder, url)}", flush=True)
        port = serving_load.free_port()
        stack.enter_context(process(hold_back, port, port_of(redis), delay))
        time.sleep(1.0)
        flags = (
            f"--store=redis://127.0.0.1:{port}/0",
            f"--cache_rows={26 * HOT_ROWS * 4}",
            f"--store_timeout_ms={TIMEOUT_MS}",
        )
        server = stack.enter_context(serve(folder, "m", *flags))
        hot, cold, traffic = folder / "hot", folder / "cold", Traffic(rows)
        write_requests(hot, "m", 200, 1, Traffic(HOT_ROWS).zipf)
        write_requests(cold, "m", MISSES, 1, traffic.cold)
        one = first_of(hot, folder / "one")
        warm_up(folder, server, hot)
        for repeat in range(repeats):
            for name in ["alone", *delays.split(",")]:
                counts = spawn.Array("q", 2, lock=False)
                with contextlib.ExitStack() as misses:
                    if name != "alone":
                        delay.value = float(name) / 1e3
                        misses.enter_context(process(miss, server.address, cold, miss_rate, counts))
                        time.sleep(3.0)
                    clients = serving_load.clients_of(folder, server.address, one, 4)
                    found = serving_load.measure_steady(folder, clients, hit_rate, seconds)
                delay.value = 0.0
                time.sleep(1.0)
                found |= {"answered": counts[0], "refused": counts[1], "repeat": repeat}
                results.append({"store": name, **found})  # type: ignore[dict-item]
                print(
                    f"{name:>6}: p50 {found['p50_us']:8.0f} us, p99 {found['p99_us']:8.0f}, usual "
                    f"p99 {found['usual_p99_us']:8.0f}, CPUs {found['busy']:4.0%} busy; misses: "
                    f"{counts[0]} answered, {counts[1]} failed",
                    flush=True,
                )
    summary(results, delays.split(","))
    if json_path is not None:
        conditions = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "rows": rows}
        json_path.write_text(json.dumps({"conditions": conditions, "results": results}, indent=1))


def summary(results: list[dict[str, float]], delays: list[str]) -> None:
    """Prints medians, and ratios to the hits alone."""

    def median(name: str, metric: str) -> float:
        values = sorted(r[metric] for r in results if r["store"] == name)  # type: ignore[comparison-overlap]
        return values[len(values) // 2]

    print(f"\n{'store':>6} {'p50 us':>9} {'p99 us':>9} {'usual p99':>10} {'p99 / alone':>12}")
    for name in ["alone", *delays]:
        p50, p99, usual = (median(name, m) for m in ("p50_us", "p99_us", "usual_p99_us"))
        ratio = p99 / median("alone", "p99_us")
        print(f"{name:>6} {p50:>9.0f} {p99:>9.0f} {usual:>10.0f} {ratio:>12.2f}")
    print(f"goal: p99 at {delays[-1]} ms at most {GOAL} times that alone")


if __name__ == "__main__":
    main()
