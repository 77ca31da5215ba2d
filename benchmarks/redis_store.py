"""What do rows in Redis cost: memory, bulk writes, reads, updates, and deletion beside reads?

One server on loopback, without persistence, a new one for each layout, the same keys in each:

    hotrow  pages of records with versions (docs/formats.md); written by RedisStore from Python,
            read by the native RedisReader called from Python, updated by the versioned `put`
    tfra    TensorFlow Recommenders-Addons' layout: one hash, field = key, value = row
    hps     HPS's layout: 8 hashes

The other layouts have no versions and no digests. A C++ program writes and reads them
(peers/redis_hashes.cc, hiredis, one thread, one connection); its times exclude Python, while
hotrow's include it. Every row read is checked in all three.

`hotrow: other reads` are 26 keys of another generation while one is deleted. Layouts are measured
in turns, `--repeats` times; compare ratios, since other programs may use the machine.

It needs `make build-tests`.

    python benchmarks/redis_store.py [--rows 1000000] [--dims 16,64] [--repeats 3] [--json F]
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import redis
from built_readers import built_readers
from redis_process import cpu_seconds, port_of, redis_server

from hotrow import _native
from hotrow.store.access import StoreAccess
from hotrow.store.redis.row_store import RedisStore
from hotrow.store.spec import RECORD_HEAD_BYTES, Generation, State, StoredTable
from hotrow.store.url import parse_store_url

HERE = Path(__file__).parent
LAYOUTS = ("hotrow", "tfra", "hps")
BASELINE = "tfra"
SHARDS = 256
PIECE_ROWS = 250_000  # written by a call, as an export does
LOOKUPS = (26, 2000)
UPDATES_A_SECOND = 20_000
UNITS = {
    "bytes_a_row": "B",
    "written": "rows/s",
    **{f"read_{keys}": "rows/s" for keys in LOOKUPS},
    **{f"read_{keys}_p50": "us" for keys in LOOKUPS},
    **{f"read_{keys}_p99": "us" for keys in LOOKUPS},
    "digested": "rows/s",
    "update_cpu": "cores",
    "deleted": "rows/s",
    "idle_p99": "us",
    "deleting_p99": "us",
}


def keys_of(numbers: Any) -> Any:
    """Returns the keys of numbers, int64: splitmix64, as the peers' program."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))).view(np.int64)


def rows_of(keys: Any, dim: int) -> Any:
    """Returns rows uint8 [N, 4 D] that begin with their keys."""
    rows = np.ones((len(keys), 4 * dim), np.uint8)
    rows[:, :8] = keys.reshape(-1, 1).view(np.uint8)
    return rows


def generation_of(store: RedisStore, rows: int, dim: int) -> Generation:
    """Returns a generation of one table, complete."""
    number = store.records.next_number()
    pages = store.pages_of(RECORD_HEAD_BYTES + 4 * dim, rows, SHARDS)
    table = StoredTable(
        name="t", dim=dim, row_type="float32", default_value=0.0, rows=rows, pages=pages
    )
    return Generation(
        generation=f"{number:032x}",
        number=number,
        model="m",
        version=1,
        step=1,
        source="benchmark",
        state=State.COMPLETE,
        shards=SHARDS,
        schema_hash="",
        created_ms=0,
        epoch=1,
        seq=0,
        tables=(table,),
    )


class Hotrow:
    """Rows in Hotrow's layout."""

    def __init__(self, port: int, rows: int, dim: int) -> None:
        url = parse_store_url("--store", f"redis://127.0.0.1:{port}")
        self.store = RedisStore(url, StoreAccess())
        self.rows, self.dim = rows, dim
        self.generation = generation_of(self.store, rows, dim)
        self._readers = built_readers()
        self._numbers = np.random.default_rng(1)

    def write(self) -> float:
        """Writes all rows; returns rows a second, without the time to generate them."""
        keys = keys_of(np.arange(self.rows))
        _, place = _native.page_of_keys(keys, SHARDS, self.generation.tables[0].pages)
        keys = keys[np.argsort(place, kind="stable")]
        place.sort()
        # Pieces of whole pages.
        ends = [*np.searchsorted(place, place[PIECE_ROWS::PIECE_ROWS]).tolist(), self.rows]
        seconds, first = 0.0, 0
        for last in ends:
            piece = np.ascontiguousarray(keys[first:last])
            rows = rows_of(piece, self.dim)
            began = time.perf_counter()
            self.store.write(self.generation, 0, piece, rows)
            seconds += time.perf_counter() - began
            first = last
        # A reader wants to know how many rows there are, not what they are.
        self.store.set_markers(self.generation, [np.zeros((SHARDS, 3), np.uint64)])
        return self.rows / seconds

    def reader(self) -> Callable[[Any], Any]:
        """Returns a function from keys to rows and states."""
        record = self.generation.model_dump_json()
        native = self._readers.RedisReader(record, json.dumps(self.store.topology()))

        def read(keys: Any) -> tuple[Any, Any]:
            ((rows, _, states),), _, _ = native.read([(0, keys)])
            return rows, states

        return read

    def random_keys(self, count: int) -> Any:
        """Returns distinct keys, int64, about `count`."""
        return keys_of(np.unique(self._numbers.integers(0, self.rows, count)))

    def read(self, count: int, seconds: float) -> dict[str, float]:
        """Returns rows a second, and microseconds of a lookup of `count` keys."""
        read = self.reader()
        micros, total, busy = [], 0, 0.0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            keys = self.random_keys(count)
            began = time.perf_counter()
            rows, states = read(keys)
            took = time.perf_counter() - began
            assert states.all()
            assert (rows[:, :8].copy().view(np.int64)[:, 0] == keys).all()
            micros.append(took * 1e6)
            busy += took
            total += len(keys)
        p50, p99 = np.percentile(micros, [50, 99])
        return {"rows_a_second": total / busy, "p50_us": float(p50), "p99_us": float(p99)}

    def update(self, seconds: float) -> None:
        """Puts new versions of random rows at a steady rate, ten times a second."""
        began, turn, version = time.monotonic(), 0, self.generation.row_version
        while turn < seconds * 10:
            time.sleep(max(0.0, began + turn / 10 - time.monotonic()))
            keys = self.random_keys(UPDATES_A_SECOND // 10)
            turn += 1
            versions = np.full(len(keys), version + turn, np.uint64)
            rows = rows_of(keys, self.dim)
            assert self.store.put(self.generation, 0, keys, rows, versions) == len(keys)

    def digest(self) -> float:
        """Reads all pages back; returns rows a second."""
        began = time.perf_counter()
        digests = self.store.digests(self.generation, 0)
        assert digests[:, 0].sum() == self.rows
        return self.rows / (time.perf_counter() - began)


def delete(url: str, record: str, started: Any, seconds: Any) -> None:
    """Deletes a generation, in a process of its own, and puts the seconds into a queue."""
    store = RedisStore(parse_store_url("--store", url), StoreAccess())
    generation = Generation.model_validate_json(record)
    started.set()
    began = time.perf_counter()
    store.delete_rows(generation)
    seconds.put(time.perf_counter() - began)
    store.close()


def delete_beside_reads(port: int, rows: int, dim: int) -> dict[str, float]:
    """Deletes a generation while another one is read."""
    kept, old = Hotrow(port, 100_000, dim), Hotrow(port, rows, dim)
    kept.write()
    old.write()
    idle = kept.read(LOOKUPS[0], 3.0)
    # In another process, since two threads would wait for each other's GIL.
    spawn = multiprocessing.get_context("spawn")
    seconds = spawn.Queue()
    started = spawn.Event()
    arguments = (old.store.url, old.generation.model_dump_json(), started, seconds)
    deleting = spawn.Process(target=delete, args=arguments)
    deleting.start()
    started.wait()
    runs = []
    while deleting.is_alive():
        runs.append(kept.read(LOOKUPS[0], 0.5))
    deleting.join()
    # The last read continued after the deletion.
    runs = runs[:-1] or runs
    kept.store.close()
    old.store.close()
    return {
        "deleted": rows / seconds.get(),
        "idle_p99": idle["p99_us"],
        "deleting_p99": statistics.median(run["p99_us"] for run in runs),
    }


def measure_hotrow(client: redis.Redis, rows: int, dim: int, seconds: float) -> dict[str, float]:
    """Measures Hotrow's layout on an empty server."""
    before = client.info("memory")["used_memory"]
    subject = Hotrow(port_of(client), rows, dim)
    result = {"written": subject.write()}
    result["bytes_a_row"] = (client.info("memory")["used_memory"] - before) / rows
    for count in LOOKUPS:
        run = subject.read(count, seconds)
        result |= {
            f"read_{count}": run["rows_a_second"],
            f"read_{count}_p50": run["p50_us"],
            f"read_{count}_p99": run["p99_us"],
        }
    result["digested"] = subject.digest()
    began, cpu = time.monotonic(), cpu_seconds(client)
    subject.update(seconds)
    result["update_cpu"] = (cpu_seconds(client) - cpu) / (time.monotonic() - began)
    subject.store.delete_rows(subject.generation)
    subject.store.close()
    return result | delete_beside_reads(port_of(client), rows, dim)


def measure_peer(
    program: Path, layout: str, client: redis.Redis, rows: int, dim: int, seconds: float
) -> dict[str, float]:
    """Measures another layout on an empty server."""

    def run(what: str, *more: float) -> dict[str, float]:
        command = [program, what, layout, port_of(client), rows, dim, *more]
        done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
        answer: dict[str, float] = json.loads(done.stdout)
        return answer

    before = client.info("memory")["used_memory"]
    result = {"written": run("write")["rows_a_second"]}
    result["bytes_a_row"] = (client.info("memory")["used_memory"] - before) / rows
    for count in LOOKUPS:
        read = run("read", count, seconds)
        result |= {
            f"read_{count}": read["rows_a_second"],
            f"read_{count}_p50": read["p50_us"],
            f"read_{count}_p99": read["p99_us"],
        }
    began, cpu = time.monotonic(), cpu_seconds(client)
    run("update", UPDATES_A_SECOND, seconds)
    result["update_cpu"] = (cpu_seconds(client) - cpu) / (time.monotonic() - began)
    return result


def print_table(dim: int, results: dict[str, dict[str, float]]) -> None:
    """Prints a line a metric, a column a layout, and the ratio to the baseline."""
    click.echo(
        f"\ndim {dim:<16}" + "".join(f"{layout:>12}" for layout in results) + f"{'ratio':>9}"
    )
    for metric, unit in UNITS.items():
        values = [results[layout].get(metric) for layout in results]
        cells = "".join(f"{'-' if v is None else f'{v:.4g}':>12}" for v in values)
        base = results.get(BASELINE, {}).get(metric)
        own = results.get("hotrow", {}).get(metric)
        ratio = f"{own / base:.2f}" if own and base else "-"
        click.echo(f"{metric + ', ' + unit:<20}{cells}{ratio:>9}")


def to_results(dim: int, results: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Returns the measurements in the form that all benchmarks write."""
    base = results.get(BASELINE, {})
    return [
        {
            "case": f"{layout}, dim {dim}",
            "metric": metric,
            "value": value,
            "unit": UNITS[metric],
            "baseline": BASELINE if metric in base else None,
            "ratio": value / base[metric] if base.get(metric) else None,
        }
        for layout, row in results.items()
        for metric, value in row.items()
    ]


@click.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--dims", default="16,64", show_default=True)
@click.option("--seconds", default=5.0, show_default=True, help="Of each kind of reads.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(rows: int, dims: str, seconds: float, repeats: int, json_path: Path | None) -> None:
    """Measures the layouts and prints a table for each width."""
    version = subprocess.run(["redis-server", "--version"], capture_output=True, text=True)
    conditions: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "redis": version.stdout.split(" sha")[0].strip(),
        "rows": f"{rows} of float32, {SHARDS} shards; loopback TCP, no persistence",
        "lookups": f"{' and '.join(map(str, LOOKUPS))} random keys, one at a time, {seconds:g} s",
        "updates": f"{UPDATES_A_SECOND} random rows a second, {seconds:g} s",
        "repeats": f"{repeats}, in turns; medians",
    }
    for name, value in conditions.items():
        click.echo(f"{name:<12} {value}")
    written = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "redis_hashes"
        source = HERE / "peers" / "redis_hashes.cc"
        include = f"-I{HERE.parent / 'ops' / 'native'}"
        command = [
            "g++",
            "-std=c++17",
            "-O2",
            include,
            str(source),
            "-lhiredis",
            "-o",
            str(program),
        ]
        subprocess.run(command, check=True)
        for dim in map(int, dims.split(",")):
            runs: dict[str, list[dict[str, float]]] = {layout: [] for layout in LAYOUTS}
            for _ in range(repeats):
                for layout in LAYOUTS:
                    with redis_server() as client:
                        if layout == "hotrow":
                            run = measure_hotrow(client, rows, dim, seconds)
                        else:
                            run = measure_peer(program, layout, client, rows, dim, seconds)
                    runs[layout].append(run)
            medians = {
                layout: {
                    name: statistics.median(run[name] for run in several) for name in several[0]
                }
                for layout, several in runs.items()
            }
            print_table(dim, medians)
            written += to_results(dim, medians)
    if json_path is not None:
        json_path.write_text(json.dumps({"conditions": conditions, "results": written}, indent=1))


if __name__ == "__main__":
    main()
