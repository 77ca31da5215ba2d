"""Is the training step of `platform train --online` slower when it publishes?

At full speed, on recorded events: a trainer that publishes into a Redis (loopback TCP) and two that
do not, in short turns. How the second of these differs from the first says what the machine adds to
a difference. In production Redis has a machine of its own: here trainers have a real-time policy
(SCHED_RR, which needs CAP_SYS_NICE), so that Redis runs only where they leave a CPU idle. The
process that folds cuts leaves that policy, wherever it runs.

    python benchmarks/training_step.py [--rates 1000,20000] [--rounds 100] [--json F]
    python benchmarks/training_step.py --publish_seconds 0.5   # twice as many cuts as by default
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import serving_load
from estimates import median_interval
from fresh_system import ADMIN, CONFIG, DIM, FIRST, PUBLISHING, Status, trainer
from redis_process import port_of, redis_server

_STEP_SECONDS = 2.0
_SETTLE_SECONDS = 0.5
_STEPS = 14_000
_RECORDINGS = 12
_KINDS = ("without", "again without", "with")


def _thread_seconds(pid: int) -> npt.NDArray[np.float64]:
    """Seconds that a process' first thread has run, and has waited for a CPU."""
    ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return np.array([int(ran), int(waited)]) / 1e9


def _signal(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a trainer and to the process that folds its cuts."""
    for one in serving_load.descendants(pid):
        os.kill(one, number)


def step_times(
    folder: Path, port: int, rate: float, publish_seconds: float, rounds: int
) -> dict[str, Any]:
    """Measures training at full speed with and without publishing.

    A trainer of each kind runs, and the others are stopped while one is measured, in short turns:
    the speed of a shared machine changes from minute to minute by more than what is measured. The
    order of a round is drawn.

    Args:
        folder: for the runs.
        port: of Redis.
        rate: changed rows a second. Keys are so few that a cut has no more rows.
        publish_seconds: time between two cuts.
        rounds: turns of each kind.

    Returns:
        Milliseconds of the training thread for a step of 1,024 events, what it does for cuts
        included, without waiting for events; of these, those it ran and those it waited for a CPU.
        Ratios are the median of the rounds' and its 95 % confidence interval: of publishing to the
        mean of the two trainers that do not, and of these to each other.
    """
    batch = 1024
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
    found: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    ran: dict[str, list[npt.NDArray[np.float64]]] = {kind: [] for kind in _KINDS}
    rows_per_second = []
    with contextlib.ExitStack() as running:
        trainers = {}
        for kind in _KINDS:
            more = publishing if kind == "with" else ADMIN
            (folder / "fresh.yaml").write_text(text + more)
            process = running.enter_context(trainer(folder, run=kind, first=FIRST))
            status = Status(folder, kind)
            while status().step < 1 or (kind == "with" and status().publishing.cuts < 2):
                time.sleep(0.1)
            _signal(process.pid, signal.SIGSTOP)
            running.callback(_signal, process.pid, signal.SIGCONT)
            trainers[kind] = process, status
        for kind in itertools.chain(*(random.permutation(_KINDS) for _ in range(rounds))):
            process, status = trainers[kind]
            _signal(process.pid, signal.SIGCONT)
            time.sleep(_SETTLE_SECONDS)
            before, ran_before = status(), _thread_seconds(process.pid)
            time.sleep(_STEP_SECONDS)
            after, ran_after = status(), _thread_seconds(process.pid)
            _signal(process.pid, signal.SIGSTOP)
            if after.step == _STEPS * _RECORDINGS:
                raise RuntimeError("the recording is too short for this machine")
            steps, seconds = after.step - before.step, after.time - before.time
            found[kind].append((after.busy_seconds - before.busy_seconds) / steps * 1e3)
            ran[kind].append((ran_after - ran_before) / steps * 1e3)
            if kind == "with":
                rows = after.publishing.rows - before.publishing.rows
                rows_per_second.append(rows / seconds)
    return {
        "rate": rate,
        "rows_per_second": float(np.mean(rows_per_second)),
        "step_ms": {kind: float(np.median(times)) for kind, times in found.items()},
        "cpu_ms": {kind: np.median(times, axis=0).tolist() for kind, times in ran.items()},
        "all": found,
        "step": _ratios({kind: np.array(times) for kind, times in found.items()}),
        "cpu": _ratios({kind: np.array(times)[:, 0] for kind, times in ran.items()}),
    }


def _ratios(times: dict[str, npt.NDArray[np.float64]]) -> dict[str, tuple[float, float, float]]:
    first, second, publishing = (times[kind] for kind in _KINDS)
    return {
        "with publishing": median_interval(2 * publishing / (first + second)),
        "of two without": median_interval(second / first),
    }


@click.command()
@click.option("--rates", default="1000,20000", help="Changed rows a second.")
@click.option("--publish_seconds", default=1.0, show_default=True)
@click.option("--rounds", default=100, show_default=True, help="Turns of each kind.")
@click.option("--json", "json_file", type=Path)
def main(rates: str, publish_seconds: float, rounds: int, json_file: Path | None) -> None:
    """Runs the benchmark."""
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    found = []
    with tempfile.TemporaryDirectory() as name, redis_server() as redis:
        for rate in map(float, rates.split(",")):
            folder = Path(name) / f"{rate:g}"  # its recordings and runs
            folder.mkdir()
            (folder / "history.csv").write_text("clicked,price,user,item\n0,0.5,1,1\n1,0.5,2,2\n")
            found.append(step_times(folder, port_of(redis), rate, publish_seconds, rounds))
            print(json.dumps(found[-1], indent=1), flush=True)
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
