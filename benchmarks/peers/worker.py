"""What the worker scripts share: a request comes in argv, results go to stdout as lines of JSON.

A worker runs in the virtual environment of its system as `python -m peers.<system> REQUEST`,
with benchmarks/ as its directory, on as many cores as it may use threads. Only numpy is needed
here.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peers.workload import Workload

LEARNING_RATE = {"sgd": 0.05, "adagrad": 0.05, "rowwise_adagrad": 0.05, "adam": 0.001}
ACCUMULATOR, EPSILON = 0.1, 1e-7


@dataclass(frozen=True)
class Request:
    """What a worker is to measure.

    Attributes:
        workload: file of `Workload.save`.
        threads: of the system.
        optimizers: names out of LEARNING_RATE.
        repeats: measured steps.
    """

    workload: str
    threads: int
    optimizers: list[str]
    repeats: int

    def argument(self) -> str:
        """Returns the request as a command-line argument."""
        return json.dumps(asdict(self))


def start() -> tuple[Request, Workload]:
    """Reads the request, and the workload that it names."""
    request = Request(**json.loads(sys.argv[1]))
    return request, Workload.load(Path(request.workload))


def say(text: str) -> None:
    """Prints progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def report(optimizer: str, variant: str, facts: Mapping[str, Any]) -> None:
    """Prints a result for the calling process."""
    print(json.dumps({"optimizer": optimizer, "variant": variant, **facts}), flush=True)


def unavailable(optimizer: str, why: str) -> None:
    """Reports that the system lacks an optimizer."""
    report(optimizer, "", {"unavailable": why})


def measure(step: Callable[[int], object], batches: int, repeats: int) -> dict[str, float]:
    """Returns what a step costs: medians over `repeats` steps, after one warm-up step a batch.

    Args:
        step: runs a step with batch i, i < batches.
        batches: how many different batches there are.
        repeats: measured steps.

    Returns:
        wall_ms; cpu_ms of all threads of the process, and its minimum; faults: page faults a step.
    """
    for i in range(batches):
        step(i)
    walls, cpus, faults = [], [], []
    for i in range(repeats):
        before = resource.getrusage(resource.RUSAGE_SELF)
        used, start = time.process_time(), time.perf_counter()
        kept = step(i % batches)
        walls.append(1e3 * (time.perf_counter() - start))
        cpus.append(1e3 * (time.process_time() - used))
        after = resource.getrusage(resource.RUSAGE_SELF)
        del kept  # the step's outputs live until here, as in a training step
        faults.append(after.ru_minflt - before.ru_minflt)
    return {
        "wall_ms": statistics.median(walls),
        "cpu_ms": statistics.median(cpus),
        "least_cpu_ms": min(cpus),
        "faults": statistics.median(faults),
        "repeats": repeats,
    }
