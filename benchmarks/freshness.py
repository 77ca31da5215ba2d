"""How soon do predictions show what a trainer has just learned, and what does that cost?

`platform train --online` on a file of events that grows, a Redis (loopback TCP, no persistence), a
`platform serve`, and clients, all on this machine. Two features of dim 16, keys drawn evenly, so
that each event changes two rows. A probe asks for one fixed row all the time: each cut has new
dense weights and changes its score. Clients (C++) send requests of 128 rows at a fixed rate.

In production trainer, Redis, clients and server have machines of their own. Here trainer, writer of
events and Redis run only where no other thread wants the CPU (SCHED_IDLE), and clients run as soon
as they wake: else the time that threads wait for each other's slices would count as the server's.
With --apart trainer, writer and Redis have the last CPU for themselves instead. With --step only
Redis is SCHED_IDLE.

    visible   from the commit of a cut to the first answer that shows it (the store's clock)
    event     from a cut's newest event to its commit
    p99       of requests while cuts are published, and while no events come, in turns
    CPU       seconds a second, of trainer, Redis and server

    python benchmarks/freshness.py [--rates 1000,20000] [--seconds 60] [--json F]
    python benchmarks/freshness.py --rates 20000 --seconds 600
    python benchmarks/freshness.py --workers 2 --rates 500,10000
    python benchmarks/freshness.py --apart   # server and clients have a CPU for themselves
    python benchmarks/freshness.py --step    # the training step with and without publishing
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import grpc
import numpy as np
import numpy.typing as npt
import serving_load
from fresh_traffic import every_key, preempt_others, request
from redis_process import port_of, redis_server

from hotrow.protos import online_pb2, online_pb2_grpc
from hotrow.store import open_store
from hotrow.store.cuts import CutRecord, cuts_of
from hotrow.store.generations import Generations

HERE = Path(__file__).parent
DIM = 16
CONFIG = """\
name: fresh
data: {{format: csv, train: history.csv, batch_size: {batch}, label: clicked}}
features:
  dense: {{columns: [price]}}
  sparse: {{columns: [user, item], dim: {dim}, hash: false}}
tables: {{default: {{optimizer: adagrad, learning_rate: 0.05}}}}
model: {{arch: dlrm, bottom: [16, {dim}], top: [16]}}
optimizer: {{name: sgd, learning_rate: 0.01}}
checkpoint: {{every_steps: 1000000, every_seconds: 60, keep: 2}}
online:
  source: "{source}"
  time: time
  publish_seconds: {publish_seconds}
  max_batch_seconds: 0.1
  frozen: false
"""
PUBLISHING = """\
  admin: "127.0.0.1:0"
  models: {folder}/models
  store: redis://127.0.0.1:{port}
"""
BESIDE = ["chrt", "--idle", "0"]
"""Stands before the commands of trainer and writer."""
CLIENTS = 4
_PHASE_SECONDS = 10.0
_STEP_SECONDS = 4.0
_SETTLE_SECONDS = 0.7
_PAIRS = 15
_STEPS = 14_000
_RECORDINGS = 8


class Watch:
    """Notes each cut of a store as it is committed, in a thread."""

    def __init__(self, url: str, generation: str) -> None:
        self.cuts: dict[int, CutRecord] = {}
        self._store = open_store(url)
        self._generation = Generations(self._store.records).get(generation)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()
        self._store.close()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for cut in cuts_of(self._store.records, self._generation):
                self.cuts.setdefault(cut.version, cut)


@contextlib.contextmanager
def trainer(folder: Path, *flags: str, run: str = "run") -> Iterator[subprocess.Popen[Any]]:
    """Runs `platform train --online` until the block ends."""
    command = [*BESIDE, sys.executable, "-m", "hotrow.cli.main", "train", "fresh.yaml", "--online"]
    with (folder / "train.log").open("a") as log:
        process = subprocess.Popen(
            [*command, "--run-dir", run, *flags], cwd=folder, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        print((folder / "train.log").read_text()[-600:])


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Runs `platform serve`; yields its address and process ids."""
    port = serving_load.free_port()
    command = [sys.executable, "-m", "hotrow.cli.main", "serve", "--model_name=fresh"]
    command += [f"--model_base_path={folder}/models/fresh", f"--port={port}"]
    command += ["--cache_rows=1000000", "--store_timeout_ms=2000"]
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        print(process.stdout.readline().strip(), flush=True)
        yield f"127.0.0.1:{port}", [process.pid, *serving_load.descendants(process.pid)]
    finally:
        process.terminate()
        process.wait()


def redis_pid(client: Any) -> int:
    """Returns the process id of a Redis."""
    return int(client.info("server")["process_id"])


class Status:
    """The status of a trainer."""

    def __init__(self, folder: Path, run: str = "run") -> None:
        path = folder / run / "admin.json"
        while not path.exists():
            time.sleep(0.1)
        address = json.loads(path.read_text())["address"]
        self._stub = online_pb2_grpc.OnlineTrainerStub(grpc.insecure_channel(address))

    def __call__(self) -> online_pb2.TrainerStatus:
        """Returns the status now."""
        return self._stub.Status(online_pb2.StatusRequest(), timeout=10.0)


def cpu_of(groups: dict[str, list[int]]) -> dict[str, float]:
    """Returns the CPU seconds of groups of processes so far."""
    return {name: serving_load.cpu_seconds(pids) for name, pids in groups.items()}


def traffic(*arguments: Any, first: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Starts a process of `fresh_traffic.py`; `first` stands before its command."""
    command = [*first, sys.executable, str(HERE / "fresh_traffic.py"), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def load(folder: Path, address: str, rate: float, seconds: float) -> npt.NDArray[np.float64]:
    """Sends requests at a rate; returns the seconds from when each was due to its answer."""
    requests, records = folder / "requests", folder / "records"
    if not requests.exists():
        serving_load.build(folder)
        requests.mkdir()
        random = np.random.default_rng(1)
        for number in range(64):
            (requests / f"{number:02}").write_bytes(request(128, random).SerializeToString())
    process = subprocess.Popen(
        [*serving_load.clients_of(folder, address, requests, CLIENTS), str(rate), str(records)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        preexec_fn=preempt_others,
    )
    time.sleep(seconds)
    process.communicate()
    due, _, nanos, version = np.fromfile(records, np.int64).reshape(-1, 4).T
    if process.returncode or (version < 0).any():
        raise RuntimeError(f"{(version < 0).sum()} requests failed")
    return nanos[np.argsort(due)] / 1e9


def writer(folder: Path, rate: float, seconds: float) -> subprocess.Popen[str]:
    """Starts to write events."""
    return traffic("write", folder / "events.jsonl", rate, seconds, first=BESIDE)


def answers_of(process: subprocess.Popen[str]) -> list[tuple[float, float]]:
    """Returns what a process has measured, when it ends."""
    printed, _ = process.communicate()
    return [(first, second) for first, second in json.loads(printed)]


def visible_seconds(cuts: list[CutRecord], changes: list[tuple[float, float]]) -> list[float]:
    """Returns, for each cut, the time from its commit to the first other answer after it."""
    times = np.array([when for when, _ in changes])
    found = []
    for cut, following in zip(cuts, [*cuts[1:], None], strict=True):
        committed = cut.committed_ms / 1000
        at = int(np.searchsorted(times, committed))
        end = np.inf if following is None else following.committed_ms / 1000 + 1.0
        if at < len(times) and times[at] < end:
            found.append(float(times[at]) - committed)
    return found


def steady(
    folder: Path,
    address: str,
    rate: float,
    seconds: float,
    watch: Watch,
    groups: dict[str, list[int]],
    status: Status,
) -> dict[str, Any]:
    """Measures one rate of changed rows."""
    known, used, before = set(watch.cuts), cpu_of(groups), status()
    began = time.time()
    writing = writer(folder, rate / 2, seconds)
    asking = traffic("probe", address, seconds)
    lags = []
    while writing.poll() is None:
        time.sleep(min(2.0, seconds / 10))
        now = status()
        lags.append((time.time() - began, now.stream.lag_events, now.publishing.waiting_rows))
    wall = time.time() - began
    used = {name: value - used[name] for name, value in cpu_of(groups).items()}
    answers = answers_of(asking)
    cuts = [cut for version, cut in sorted(watch.cuts.items()) if version not in known]
    cuts = [cut for cut in cuts if cut.committed_ms / 1000 < began + seconds]
    lag = visible_seconds(cuts, answers)
    events = [cut.committed_ms / 1000 - cut.event_ms / 1000 for cut in cuts]
    after = status()
    half = len(lags) // 2
    rows = sum(cut.rows for cut in cuts)
    return {
        "rate": rate,
        "seconds": wall,
        "cuts": len(cuts),
        "rows_per_second": rows / seconds,
        "events_per_second": (after.stream.events - before.stream.events) / wall,
        "visible_p50": float(np.percentile(lag, 50)),
        "visible_p99": float(np.percentile(lag, 99)),
        "visible_most": max(lag),
        "seen": len(lag) / max(1, len(cuts)),
        "event_to_commit_p50": float(np.percentile(events, 50)),
        "event_to_commit_p99": float(np.percentile(events, 99)),
        "lag_events_first_half": float(np.mean([x[1] for x in lags[:half]])),
        "lag_events_second_half": float(np.mean([x[1] for x in lags[half:]])),
        "waiting_rows_most": max(x[2] for x in lags),
        "failures": after.publishing.failures_total - before.publishing.failures_total,
        "cpu": {name: value / wall for name, value in used.items()},
    }


def turns(folder: Path, address: str, rate: float, number: int, requests: float) -> dict[str, Any]:
    """Measures requests with and without updates, in turns."""
    calm: list[float] = []
    busy: list[float] = []
    for turn in range(2 * number):
        writing = writer(folder, rate / 2, _PHASE_SECONDS) if turn % 2 else None
        found = load(folder, address, requests, _PHASE_SECONDS)
        if writing is not None:
            writing.wait()
        settled = found[int(0.2 * len(found)) :]
        (busy if turn % 2 else calm).extend(settled)
        time.sleep(2.0)
    quantiles = (50, 95, 99)
    return {
        "rate": rate,
        "requests_per_second": requests,
        "calm_ms": [float(np.percentile(calm, q)) * 1e3 for q in quantiles],
        "busy_ms": [float(np.percentile(busy, q)) * 1e3 for q in quantiles],
        "p99_ratio": float(np.percentile(busy, 99) / np.percentile(calm, 99)),
    }


def step_times(folder: Path, port: int, rate: float, pairs: int) -> dict[str, Any]:
    """Measures training at full speed with and without publishing.

    A trainer of each kind runs, and one is stopped while the other is measured, in short turns: the
    speed of a shared machine changes from minute to minute by more than what is measured.

    Args:
        folder: for the runs.
        port: of Redis.
        rate: changed rows a second. Keys are so few that a cut has no more rows.
        pairs: turns of each kind.

    Returns:
        Milliseconds of the training thread for a step of 1,024 events, what it does for cuts
        included, without waiting for events.
    """
    batch, publish_seconds = 1024, 0.5
    keys = int(rate * publish_seconds / 2)
    random = np.random.default_rng(0)
    with (folder / "recording0.csv").open("w") as file:
        file.write("time,clicked,price,user,item\n")
        for _ in range(_STEPS):
            users, items = random.integers(0, keys, (2, batch))
            labels = random.integers(0, 2, batch)
            rows = zip(labels, users, items, strict=True)
            file.writelines(f"1.7e9,{c},0.5,{u},{i}\n" for c, u, i in rows)
    for number in range(1, _RECORDINGS):
        (folder / f"recording{number}.csv").symlink_to("recording0.csv")
    files = ",".join(f"{folder}/recording{number}.csv" for number in range(_RECORDINGS))
    text = CONFIG.format(
        batch=batch, dim=DIM, source=f"replay:{files}?speed=max", publish_seconds=publish_seconds
    )
    publishing = PUBLISHING.format(folder=folder, port=port)
    admin = publishing.splitlines(keepends=True)[0]
    found: dict[str, list[float]] = {"without": [], "with": []}
    rows_per_second = []
    with contextlib.ExitStack() as running:
        trainers = {}
        for kind, more in (("without", admin), ("with", publishing)):
            (folder / "fresh.yaml").write_text(text + more)
            process = running.enter_context(trainer(folder, run=kind))
            status = Status(folder, kind)
            while status().step < 1 or (kind == "with" and status().publishing.cuts < 2):
                time.sleep(0.1)
            process.send_signal(signal.SIGSTOP)
            running.callback(process.send_signal, signal.SIGCONT)
            trainers[kind] = process, status
        for turn in range(2 * pairs):
            kind = "with" if turn % 2 else "without"
            process, status = trainers[kind]
            process.send_signal(signal.SIGCONT)
            time.sleep(_SETTLE_SECONDS)
            before = status()
            time.sleep(_STEP_SECONDS)
            after = status()
            process.send_signal(signal.SIGSTOP)
            if after.step == _STEPS * _RECORDINGS:
                raise RuntimeError("the recording is too short for this machine")
            steps, seconds = after.step - before.step, after.time - before.time
            found[kind].append((after.busy_seconds - before.busy_seconds) / steps * 1e3)
            if kind == "with":
                rows = after.publishing.rows - before.publishing.rows
                rows_per_second.append(rows / seconds)
    medians = {kind: float(np.median(values)) for kind, values in found.items()}
    ratios = np.array(found["with"]) / np.array(found["without"])
    return {
        "rate": rate,
        "rows_per_second": float(np.mean(rows_per_second)),
        "step_ms": medians,
        "all": found,
        "ratio": float(np.median(ratios)),
        "ratio_quartiles": np.percentile(ratios, (25, 75)).tolist(),
    }


@click.command()
@click.option("--rates", default="1000,20000", help="Changed rows a second.")
@click.option("--seconds", default=60.0)
@click.option("--publish_seconds", default=0.5)
@click.option("--turns", "number", default=3, help="Turns of requests with and without updates.")
@click.option("--requests", default=100.0, help="Requests a second, of 128 rows.")
@click.option("--workers", default=1, help="Ranks of the trainer.")
@click.option("--apart", is_flag=True, help="Trainer, writer, Redis on the last CPU.")
@click.option("--step", is_flag=True, help="Measure the training step instead.")
@click.option("--json", "json_file", type=Path)
def main(
    rates: str,
    seconds: float,
    publish_seconds: float,
    number: int,
    requests: float,
    workers: int,
    apart: bool,
    step: bool,
    json_file: Path | None,
) -> None:
    """Runs the benchmark."""
    each = [float(rate) for rate in rates.split(",")]
    print(f"{platform.processor()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    found: dict[str, Any] = {}
    *others, last = sorted(os.sched_getaffinity(0))
    if apart:
        BESIDE[:] = ["taskset", "--cpu-list", str(last)]
        os.sched_setaffinity(0, [last])  # of Redis
    with tempfile.TemporaryDirectory() as name, redis_server() as redis:
        if apart:
            os.sched_setaffinity(0, others)
        folder, port = Path(name), port_of(redis)
        if not apart:
            os.sched_setscheduler(redis_pid(redis), os.SCHED_IDLE, os.sched_param(0))
            if step:
                BESIDE.clear()
        (folder / "history.csv").write_text("clicked,price,user,item\n0,0.5,1,1\n1,0.5,2,2\n")
        if step:
            found["steps"] = []
            for rate in each:
                own = folder / f"{rate:g}"  # its recordings and runs
                own.mkdir()
                (own / "history.csv").symlink_to(folder / "history.csv")
                found["steps"].append(step_times(own, port, rate, _PAIRS))
                print(json.dumps(found["steps"][-1], indent=1), flush=True)
        else:
            found["rates"] = _rates(
                folder, port, redis, each, seconds, publish_seconds, number, requests, workers
            )
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")


def _rates(
    folder: Path,
    port: int,
    redis: Any,
    rates: list[float],
    seconds: float,
    publish_seconds: float,
    number: int,
    requests: float,
    workers: int,
) -> list[Any]:
    events = folder / "events.jsonl"
    events.write_text(every_key(np.random.default_rng(3), time.time()))
    text = CONFIG.format(
        batch=1024, dim=DIM, source=f"file:{events}", publish_seconds=publish_seconds
    )
    (folder / "fresh.yaml").write_text(text + PUBLISHING.format(folder=folder, port=port))
    found = []
    flags = ("--workers", str(workers)) if workers > 1 else ()
    with trainer(folder, *flags) as training:
        status = Status(folder)
        while status().publishing.cuts < 1 or status().stream.lag_events:
            time.sleep(0.5)
        manifest = folder / "models" / "fresh" / "1" / "assets" / "hotrow_manifest.json"
        watch = Watch(f"redis://127.0.0.1:{port}", json.loads(manifest.read_text())["generation"])
        with server(folder) as (address, pids):
            load(folder, address, 400.0, 12.0)  # rows into the server's cache
            groups = {
                "trainer": [training.pid, *serving_load.descendants(training.pid)],
                "server": pids,
            }
            groups["redis"] = [redis_pid(redis)]
            for rate in rates:
                one = steady(folder, address, rate, seconds, watch, groups, status)
                print(json.dumps(one, indent=1), flush=True)
                if number:
                    one["turns"] = turns(folder, address, rate, number, requests)
                    print(json.dumps(one["turns"], indent=1), flush=True)
                found.append(one)
        watch.close()
    return found


if __name__ == "__main__":
    main()
