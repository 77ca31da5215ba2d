"""Do memory and lookups stay as they are while a server takes 10,000 cuts?

A model with one table, its rows in a Redis that this program starts; a `platform serve` with a
cache of the hot rows. A trainer's part commits cut after cut (some with dense weights of their
own), waits for the server every few cuts, and folds what it has taken. From time to time a reader
holds up folding for a while, as a paused server does. Printed at each look:

    cuts      committed so far, and those that are not folded
    control   resident memory of the control process; served: that of the executable
    redis     `used_memory` of Redis
    layers    that a lookup probes, the most since the last look
    p99       of requests of 256 keys by one client, sent at a pause of the cuts

At the end: growth a cut (the slope of a line through the second half of the looks). Then a second
server starts, both take some more cuts, and requests go to the one and the other in turns, so that
a machine that is slower for a while is so for both:

    lookups   p99 of the server that has taken all cuts to that of the new one, and the same of
              p50: the median of several ratios, and its 95 % confidence interval

    python benchmarks/many_cuts.py [--cuts 10000] [--rows 200] [--json F]
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import grpc
import keras
import numpy as np
import serving_load
import tensorflow as tf
from estimates import median_interval, slope
from redis_process import port_of, redis_server
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

import hotrow
from hotrow.manifest import read_manifest
from hotrow.ops.export.dense_checkpoint import dense_checkpoint
from hotrow.store import open_store
from hotrow.store.cut_writing import write_cut
from hotrow.store.cuts import CutRecord, TableChanges, cuts_of
from hotrow.store.generations import Generations
from hotrow.store.leases import Lease, lock_exports
from hotrow.store.readers import readers, use
from hotrow.store.taken_cuts import fold_taken

DIM = 16
KEYS = 50_000
REQUEST_KEYS = 256
PAGE = os.sysconf("SC_PAGE_SIZE")
# A server may be this many cuts behind.
_AHEAD = 4
_DENSE_EVERY = 10
_FOLD_EVERY = 5
_LAYERS_EVERY = 25
# Every so many cuts a reader holds up folding for as many cuts.
_HOLD_EVERY, _HOLD_CUTS = 500, 60
_REQUESTS = 400
# Of the comparison with a new server: each ratio is of so many turns of so many requests.
_NEW_CUTS, _WARM_REQUESTS = 100, 3000
_RATIOS, _TURNS, _TURN_REQUESTS = 40, 100, 20
_PATIENCE_SECONDS = 60.0
GOAL_BYTES, GOAL_RATIO = 1024, 1.05


class Trainer:
    """Commits and folds cuts of a model."""

    def __init__(self, base: Path, url: str, rows: int) -> None:
        table = hotrow.TableConfig("t", DIM, optimizer=hotrow.SGD(0.1))
        layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("key", table)])
        key = keras.Input((1,), dtype="int64", name="key")
        self._dense = keras.layers.Dense(1)
        model = keras.Model({"key": key}, {"y": self._dense(layer({"key": key})["key"])})
        layer.tables["t"].lookup(np.arange(KEYS, dtype=np.int64), insert=True)
        self._version = hotrow.export_model(model, base, "m", store=url)
        self.store = open_store(url)
        manifest = read_manifest(self._version / "assets" / "hotrow_manifest.json")
        self.generation = Generations(self.store.records).get(manifest.generation)
        self._rows = rows
        self._random = np.random.default_rng(0)
        self.last: CutRecord | None = None
        self.step = 0

    def commit(self, lock: Lease) -> CutRecord:
        """Commits the next cut."""
        self.step += 1
        keys = np.unique((KEYS * self._random.random(2 * self._rows) ** 3).astype(np.int64))
        rows = self._random.random((len(keys), DIM), np.float32)
        dense: bytes | CutRecord | None = self.last
        if dense is None or self.step % _DENSE_EVERY == 0:
            self._dense.bias.assign([float(self.step)])
            dense, _ = dense_checkpoint([self._dense.kernel, self._dense.bias], self._version)
        self.last = write_cut(
            self.store,
            self.generation,
            lock,
            changes=[(0, TableChanges(keys, rows.view(np.uint8), np.empty(0, np.int64)))],
            dense=dense,
            step=self.step,
            clocks=[self.step],
            after=self.last,
            event_ms=time.time_ns() // 1_000_000,
        )
        return self.last

    def wait_for_server(self, cut: CutRecord) -> None:
        """Waits until the server has taken a cut."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while any(
            reader.follows_cuts and reader.cut < cut.version
            for reader in readers(self.store.records, self.generation.generation)
        ):
            if time.monotonic() > end:
                raise click.ClickException(f"the server does not take cut {cut.version:016x}")
            time.sleep(0.01)

    def fold(self, lock: Lease) -> None:
        """Folds what all readers have taken; its folded record is the one to go on from."""
        fold_taken(self.store, self.generation, lock)
        self.last = cuts_of(self.store.records, self.generation)[-1]


class Server:
    """A running server: its processes, metrics and answers."""

    def __init__(self, address: str, rest_port: int, pids: list[int]) -> None:
        self._page = f"http://127.0.0.1:{rest_port}/monitoring/prometheus/metrics"
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(
            grpc.insecure_channel(address)
        )
        names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}
        (self._served,) = (pid for pid, name in names.items() if name == "hotrow-server")
        self._control = serving_load.parent_of(self._served)

    def metric(self, name: str) -> float:
        """Returns the sum of a metric."""
        with urllib.request.urlopen(self._page, timeout=60) as reply:
            page = reply.read().decode()
        found = re.findall(rf"^{name}{{[^}}]*}} (\S+)$", page, re.MULTILINE)
        return sum(map(float, found))

    def resident(self) -> tuple[int, int]:
        """Returns the resident bytes of the control process and of the executable."""
        control, served = (
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
            for pid in (self._control, self._served)
        )
        return control, served

    def cpu_seconds(self) -> tuple[float, float]:
        """Returns the processor time of the control process and of the executable."""
        control, served = (serving_load.cpu_seconds([pid]) for pid in (self._control, self._served))
        return control, served

    def times(self, random: np.random.Generator, requests: int = _REQUESTS) -> list[float]:
        """Returns the milliseconds of requests."""
        taken = []
        for _ in range(requests):
            request = predict_pb2.PredictRequest()
            request.model_spec.name = "m"
            keys = (KEYS * random.random((REQUEST_KEYS, 1)) ** 3).astype(np.int64)
            request.inputs["key"].CopyFrom(tf.make_tensor_proto(keys))
            began = time.perf_counter()
            self._stub.Predict(request, timeout=60)
            taken.append(1e3 * (time.perf_counter() - began))
        return taken


@contextlib.contextmanager
def serving(base: Path) -> Iterator[Server]:
    """Starts a server with a page of metrics."""
    monitoring = base.parent / "monitoring"
    monitoring.write_text("prometheus_config { enable: true }")
    rest = serving_load.free_port()
    flags = (
        f"--rest_api_port={rest}",
        f"--monitoring_config_file={monitoring}",
        f"--cache_rows={KEYS // 5}",
        "--store_timeout_ms=5000",
    )
    with serving_load.server("hotrow", base / "m", "m", flags, quiet=True) as (address, pids):
        yield Server(address, rest, pids)


def run(trainer: Trainer, server: Server, client: Any, cuts: int) -> list[dict[str, float]]:
    """Commits so many cuts; returns what each look found."""
    looks: list[dict[str, float]] = []
    random = np.random.default_rng(1)
    every = max(_FOLD_EVERY, cuts // 40)
    layers = 0.0
    waiting: list[CutRecord] = []
    began = server.cpu_seconds()
    with contextlib.ExitStack() as holding, lock_exports(trainer.store.records, "m") as lock:
        for number in range(1, cuts + 1):
            waiting.append(trainer.commit(lock))
            if len(waiting) > _AHEAD:
                trainer.wait_for_server(waiting.pop(0))
            if number % _HOLD_EVERY == 0:
                name = trainer.generation.generation
                holding.enter_context(
                    use(trainer.store.records, name, "paused", follows_cuts=False)
                )
            if number % _HOLD_EVERY == _HOLD_CUTS:
                holding.close()
            if number % _FOLD_EVERY == 0:
                trainer.fold(lock)
            if number % _LAYERS_EVERY == 0:
                layers = max(layers, server.metric("hotrow_cut_layers"))
            if number % every and number != cuts:
                continue
            trainer.wait_for_server(waiting.pop())
            waiting.clear()
            trainer.fold(lock)
            control, served = server.resident()
            looks.append(
                {
                    "cuts": number,
                    "unfolded": server.metric("hotrow_unfolded_cuts"),
                    "control": control,
                    "served": served,
                    "redis": float(client.info("memory")["used_memory"]),
                    "layers": layers,
                    "p99": float(np.percentile(server.times(random), 99)),
                }
            )
            layers = 0.0
            show(looks[-1])
    used = [
        1e3 * (now - then) / cuts for now, then in zip(server.cpu_seconds(), began, strict=True)
    ]
    click.echo(f"CPU a cut, with looks: control {used[0]:.1f} ms, served {used[1]:.1f} ms")
    return looks


def compare(trainer: Trainer, old: Server, new: Server) -> dict[str, list[float]]:
    """Returns ratios of `old`'s percentiles to `new`'s."""
    random = np.random.default_rng(2)
    with lock_exports(trainer.store.records, "m") as lock:
        for _ in range(_NEW_CUTS // _FOLD_EVERY):
            for _ in range(_FOLD_EVERY):
                trainer.wait_for_server(trainer.commit(lock))
            trainer.fold(lock)
    for server in (old, new):
        server.times(random, _WARM_REQUESTS)
        click.echo(f"layers   {server.metric('hotrow_cut_layers'):.0f}")
    ratios: dict[str, list[float]] = {"p50": [], "p99": []}
    for _ in range(_RATIOS):
        taken: dict[Server, list[float]] = {old: [], new: []}
        for turn in range(_TURNS):
            for server in (old, new) if turn % 2 else (new, old):
                taken[server] += server.times(random, _TURN_REQUESTS)
        for name, percent in (("p50", 50), ("p99", 99)):
            ratio = np.percentile(taken[old], percent) / np.percentile(taken[new], percent)
            ratios[name].append(float(ratio))
    return ratios


def show(look: dict[str, float]) -> None:
    """Prints a look."""
    click.echo(
        f"{look['cuts']:>7,.0f} cuts: {look['unfolded']:>3.0f} not folded; control "
        f"{look['control'] / 2**20:7.2f} MiB, served {look['served'] / 2**20:7.2f}, redis "
        f"{look['redis'] / 2**20:7.2f}; layers {look['layers']:>3.0f}; p99 {look['p99']:.2f} ms"
    )


@click.command()
@click.option("--cuts", default=10_000, show_default=True)
@click.option("--rows", default=200, show_default=True, help="Changed rows of a cut, about.")
@click.option("--json", "to", type=click.Path(path_type=Path))
def main(cuts: int, rows: int, to: Path | None) -> None:
    """Runs it, and prints looks and goals."""
    click.echo(f"machine  {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    click.echo(f"cuts     {cuts:,} of about {rows:,} rows of dim {DIM}, of {KEYS:,} keys")
    with TemporaryDirectory() as temporary, redis_server() as client:
        base = Path(temporary) / "models"
        base.mkdir()
        trainer = Trainer(base, f"redis://127.0.0.1:{port_of(client)}", rows)
        with serving(base) as server:
            looks = run(trainer, server, client, cuts)
            with serving(base) as new:
                ratios = compare(trainer, server, new)
        trainer.store.close()
    for name in ("control", "served", "redis"):
        goal = "" if name == "redis" else f" (aimed at: {GOAL_BYTES})"
        click.echo(f"growth of {name}: {slope(looks, name):.0f} bytes a cut{goal}")
    for name, values in ratios.items():
        goal = f" (aimed at: {GOAL_RATIO})" if name == "p99" else ""
        median, low, high = median_interval(values)
        click.echo(
            f"{name} of lookups: {median:.3f} times that of a new server, {low:.3f} to "
            f"{high:.3f}{goal}"
        )
    click.echo(f"layers probed, at most: {max(look['layers'] for look in looks):.0f}")
    click.echo(f"load now {os.getloadavg()[0]:.1f}")
    if to is not None:
        to.write_text(json.dumps({"looks": looks, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
