"""How soon do predictions show what a trainer has just learned, and what does that cost?

`platform train --online` on a file of events that grows, a Redis (loopback TCP, no persistence), a
`platform serve`, and clients, all on this machine. Two features of dim 16, keys drawn evenly, so
that each event changes two rows. A probe asks for one fixed row all the time: each cut has new
dense weights and changes its score. Clients (C++) send requests of 128 rows at a fixed rate.

In production trainer, Redis, clients and server have machines of their own. Here the threads of
clients and of requests have a real-time policy (SCHED_RR, which needs CAP_SYS_NICE), and trainer,
writer of events and Redis run only where no other thread wants the CPU (SCHED_IDLE): else the time
that threads wait for each other's slices would count as the server's. With --apart trainer, writer
and Redis have the last CPU for themselves, too.

    visible   from the commit of a cut to the first answer that shows it (the store's clock)
    event     from a cut's newest event to its commit
    p99       of requests while cuts are published, while no events come, and while a second
              trainer trains as many without publishing them, in turns
    CPU       seconds a second, of trainer, Redis and server

    python benchmarks/freshness.py [--rates 1000,20000] [--seconds 60] [--json F]
    python benchmarks/freshness.py --rates 20000 --seconds 600
    python benchmarks/freshness.py --workers 2 --rates 500,10000
    python benchmarks/freshness.py --apart   # server and clients have a CPU for themselves
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import serving_load
from estimates import median_interval
from fresh_system import (
    ADMIN,
    BESIDE,
    CONFIG,
    DIM,
    FIRST,
    PUBLISHING,
    Status,
    Watch,
    redis_pid,
    server,
    traffic,
    trainer,
    writer,
)
from fresh_traffic import every_key, go_first, request
from redis_process import port_of, redis_server

from hotrow.store.cuts import CutRecord

CLIENTS = 4
_PHASE_SECONDS = 10.0
_QUANTILES = (50, 95, 99)
_EVENTS = {"calm": None, "trained": "beside.jsonl", "updated": "events.jsonl"}
"""Kinds of turns, and the file that gets events in each."""


def cpu_of(groups: dict[str, list[int]]) -> dict[str, float]:
    """Returns the CPU seconds of groups of processes so far."""
    return {name: serving_load.cpu_seconds(pids) for name, pids in groups.items()}


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
        preexec_fn=go_first,
    )
    time.sleep(seconds)
    process.communicate()
    due, _, nanos, version = np.fromfile(records, np.int64).reshape(-1, 4).T
    if process.returncode or (version < 0).any():
        raise RuntimeError(f"{(version < 0).sum()} requests failed")
    return nanos[np.argsort(due)] / 1e9


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
    writing = writer(folder / "events.jsonl", rate / 2, seconds)
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
    """Measures requests without events, with training, and with updates, in turns.

    Returns:
        Medians over turns of their quantiles, and the median ratio of a turn with updates to each
        of the two before it, with its 95 % confidence interval, of each quantile.
    """
    found: dict[str, list[npt.NDArray[np.float64]]] = {kind: [] for kind in _EVENTS}
    for kind in number * list(_EVENTS):
        events = _EVENTS[kind]
        writing = None if events is None else writer(folder / events, rate / 2, _PHASE_SECONDS)
        times = load(folder, address, requests, _PHASE_SECONDS)
        if writing is not None:
            writing.wait()
        settled = times[int(0.2 * len(times)) :]
        found[kind].append(np.percentile(settled, _QUANTILES) * 1e3)
        time.sleep(2.0)
    ratios = {
        f"updated_of_{kind}": np.divide(found["updated"], found[kind])
        for kind in ("calm", "trained")
    }
    return {
        "rate": rate,
        "requests_per_second": requests,
        "quantiles": _QUANTILES,
        **{f"{kind}_ms": np.median(times, axis=0).tolist() for kind, times in found.items()},
        **{name: [median_interval(one) for one in each.T] for name, each in ratios.items()},
    }


@click.command()
@click.option("--rates", default="1000,20000", help="Changed rows a second.")
@click.option("--seconds", default=60.0)
@click.option("--publish_seconds", default=1.0, show_default=True)
@click.option("--turns", "number", default=3, help="Turns of requests of each kind.")
@click.option("--requests", default=100.0, help="Requests a second, of 128 rows.")
@click.option("--workers", default=1, help="Ranks of the trainer.")
@click.option("--apart", is_flag=True, help="Trainer, writer, Redis on the last CPU.")
@click.option("--json", "json_file", type=Path)
def main(
    rates: str,
    seconds: float,
    publish_seconds: float,
    number: int,
    requests: float,
    workers: int,
    apart: bool,
    json_file: Path | None,
) -> None:
    """Runs the benchmark."""
    each = [float(rate) for rate in rates.split(",")]
    print(f"{platform.processor()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
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
        (folder / "history.csv").write_text("clicked,price,user,item\n0,0.5,1,1\n1,0.5,2,2\n")
        found = _rates(
            folder, port, redis, each, seconds, publish_seconds, number, requests, workers
        )
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")


@contextlib.contextmanager
def _learning(
    folder: Path, events: str, more: str, publish_seconds: float, flags: Sequence[str]
) -> Iterator[tuple[subprocess.Popen[Any], Status]]:
    """Runs a trainer that has learned one event of each key; `more` is of its configuration."""
    run = Path(events).stem
    (folder / events).write_text(every_key(np.random.default_rng(3), time.time()))
    text = CONFIG.format(
        batch=1024, dim=DIM, source=f"file:{folder / events}", publish_seconds=publish_seconds
    )
    (folder / "fresh.yaml").write_text(text + more)
    with trainer(folder, *flags, run=run) as process:
        status = Status(folder, run)
        while status().step < 1 or status().stream.lag_events:
            time.sleep(0.5)
        yield process, status


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
    flags = ("--workers", str(workers)) if workers > 1 else ()
    publishing = PUBLISHING.format(folder=folder, port=port)
    found = []
    with _learning(folder, "events.jsonl", publishing, publish_seconds, flags) as (
        training,
        status,
    ):
        while status().publishing.cuts < 1:
            time.sleep(0.5)
        manifest = folder / "models" / "fresh" / "1" / "assets" / "hotrow_manifest.json"
        watch = Watch(f"redis://127.0.0.1:{port}", json.loads(manifest.read_text())["generation"])
        with server(folder, first=FIRST) as (address, pids):
            load(folder, address, 400.0, 12.0)  # rows into the server's cache
            groups = {
                "trainer": serving_load.descendants(training.pid),
                "server": pids,
            }
            groups["redis"] = [redis_pid(redis)]
            for rate in rates:
                one = steady(folder, address, rate, seconds, watch, groups, status)
                print(json.dumps(one, indent=1), flush=True)
                if number:
                    with _learning(folder, "beside.jsonl", ADMIN, publish_seconds, flags):
                        one["turns"] = turns(folder, address, rate, number, requests)
                    print(json.dumps(one["turns"], indent=1), flush=True)
                found.append(one)
        watch.close()
    return found


if __name__ == "__main__":
    main()
