"""How soon do servers answer with the changes of training, and what does it cost them?

A Keras model with one table, its rows in a Redis that this program starts (loopback TCP, no
persistence); a `platform serve` with a cache of 5 % of the rows; 4 clients in a process of their
own, 128 rows a request, whose answers show the cut. Each case changes so many rows and the dense
weights, several times:

    write     from the call of `hotrow.export_changes` to the commit: rows read, staged, read back
    visible   from the commit to the first answer that shows it
    all       from the commit until no answer shows the previous state
    folded    from the commit until all servers have taken it and its rows are folded into the store
    p99       of requests that began between the commit and a second later, and of the others

For comparison a full export of the same model, and the time until a server answers with it.

    python benchmarks/incremental_export.py [--rows 1000000] [--repeats 7] [--json F]
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
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import keras
import numpy as np
import serving_load
from redis_process import port_of, redis_server

import hotrow

HERE = Path(__file__).parent
DIM = 16
CHANGED = (1_000, 20_000, 200_000)
GOAL_P50, GOAL_P99 = 0.5, 2.0  # seconds from the commit to the first answer
_BUSY_SECONDS = 1.0
_IDLE_SECONDS = 1.5  # between two exports
_CHUNK = 65536


class Model:
    """A model whose dense part shows the cut, and its training."""

    def __init__(self, rows: int) -> None:
        table = hotrow.TableConfig("t", DIM, combiner="sum", optimizer=hotrow.SGD(0.1))
        layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("key", table)])
        key = keras.Input((), dtype="int64", name="key")
        row = layer({"key": key})["key"]
        zeros = {"kernel_initializer": "zeros", "bias_initializer": "zeros"}
        self._mark = keras.layers.Dense(1, **zeros)
        outputs = {"cut": self._mark(row)[:, 0], "sum": keras.ops.sum(row, axis=1)}
        self.keras = keras.Model({"key": key}, outputs)
        self._table = layer.tables["t"]
        self._rows = rows
        for first in range(0, rows, _CHUNK):
            keys = np.arange(first, min(first + _CHUNK, rows), dtype=np.int64)
            self._table.lookup(keys, insert=True)
        self._random = np.random.default_rng(0)
        self.cut = 0

    def train(self, changed: int) -> None:
        """Changes so many rows, and the dense weights."""
        self.cut += 1
        keys = self._random.choice(self._rows, changed, replace=False).astype(np.int64)
        self._table.update(keys, self._random.random((changed, DIM), np.float32))
        self._mark.bias.assign([self.cut])


def measure(
    model: Model, base: Path, address: str, pids: list[int], changed: int, repeats: int
) -> dict[str, float]:
    """Returns metrics of incremental exports of so many rows."""
    first = model.cut + 1
    exports: list[tuple[float, float, float]] = []
    command = [sys.executable, "-m", "peers.cut_clients", address, "m", "4"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE
    ) as clients:
        assert clients.stdout is not None
        clients.stdout.readline()
        time.sleep(_IDLE_SECONDS)
        used = serving_load.cpu_seconds(pids)
        for _ in range(repeats):
            model.train(changed)
            at: list[float] = [time.monotonic()]
            hotrow.export_changes(
                model.keras, base, "m", committed=lambda _, at=at: at.append(time.monotonic())
            )
            exports.append((at[0], at[1], time.monotonic()))
            time.sleep(_IDLE_SECONDS)
        used = serving_load.cpu_seconds(pids) - used
        output, _ = clients.communicate()
    answers: list[tuple[float, float, float | None]] = json.loads(output)
    visible, complete = [], []
    for cut, (_, committed, _) in enumerate(exports, first):
        of_it = [ended for _, ended, shown in answers if shown is not None and shown >= cut]
        before = [ended for _, ended, shown in answers if shown is not None and shown < cut]
        visible.append(min(of_it) - committed)
        complete.append(max(before) - committed)
    busy: list[float] = []
    calm: list[float] = []
    for began, ended, _ in answers:
        near = any(c <= began <= c + _BUSY_SECONDS for _, c, _ in exports)
        (busy if near else calm).append(ended - began)
    return {
        "write": statistics.median(c - b for b, c, _ in exports),
        "visible": statistics.median(visible),
        "most": max(visible),
        "all": statistics.median(complete),
        "folded": statistics.median(e - c for _, c, e in exports),
        "busy_p99": float(np.percentile(busy, 99)),
        "calm_p99": float(np.percentile(calm, 99)),
        "requests": float(len(answers)),
        "failed": float(sum(shown is None for _, _, shown in answers)),
        "server_cpu": used / repeats,
    }


def full_export(model: Model, base: Path, url: str, address: str) -> dict[str, float]:
    """Returns the times of a full export, and of its version until it answers."""
    command = [sys.executable, "-m", "peers.cut_clients", address, "m", "1"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE
    ) as clients:
        assert clients.stdout is not None
        clients.stdout.readline()
        model.train(1)
        began = time.monotonic()
        hotrow.export_model(model.keras, base, "m", store=url)
        written = time.monotonic()
        time.sleep(_IDLE_SECONDS + 3.0)
        output, _ = clients.communicate()
    shown = [ended for _, ended, cut in json.loads(output) if cut == model.cut]
    return {"write": written - began, "visible": min(shown) - written}


@click.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--repeats", default=7, show_default=True, help="Exports of each case.")
@click.option("--json", "to", type=click.Path(path_type=Path))
def main(rows: int, repeats: int, to: Path | None) -> None:
    """Measures, and prints a table and goals."""
    began = os.getloadavg()[0]
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary, redis_server() as client:
        base = Path(temporary)
        url = f"redis://127.0.0.1:{port_of(client)}"
        model = Model(rows)
        hotrow.export_model(model.keras, base, "m", store=url)
        click.echo(f"machine    {platform.machine()}, {os.cpu_count()} cores, load {began:.1f}")
        click.echo(f"date       {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}")
        click.echo(f"rows       {rows:,} of dim {DIM} in float32, Redis on loopback")
        flags = (f"--cache_rows={rows // 20}", "--file_system_poll_wait_seconds=0.1")
        with serving_load.server("hotrow", base / "m", "m", flags) as (address, pids):
            for changed in CHANGED:
                if changed > rows:
                    continue
                metrics = measure(model, base, address, pids, changed, repeats)
                results[str(changed)] = metrics
                click.echo(
                    f"{changed:>9,} rows: write {metrics['write']:.3f} s, visible "
                    f"{metrics['visible']:.3f} (most {metrics['most']:.3f}), all "
                    f"{metrics['all']:.3f}, folded {metrics['folded']:.3f}; p99 "
                    f"{1e3 * metrics['busy_p99']:.1f} ms beside, {1e3 * metrics['calm_p99']:.1f} "
                    f"else; {metrics['failed']:.0f} of {metrics['requests']:,.0f} requests failed; "
                    f"server {metrics['server_cpu']:.2f} CPU s an export and pause"
                )
            results["full"] = full_export(model, base, url, address)
        full = results["full"]
        click.echo(f"full export: write {full['write']:.3f} s, visible {full['visible']:.3f}")
    small = results[str(CHANGED[0])]
    click.echo(
        f"commit to visible, {CHANGED[0]:,} rows: {small['visible']:.3f} s (aimed at: {GOAL_P50}), "
        f"most {small['most']:.3f} (aimed at: {GOAL_P99})"
    )
    click.echo(f"load now {os.getloadavg()[0]:.1f}")
    if to is not None:
        to.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
