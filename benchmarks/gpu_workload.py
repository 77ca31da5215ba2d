"""The batches of the GPU benchmark, and the time of steps on its stream."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

TABLES, DIM, LOOKUPS, ROWS, SKEW = 10, 128, 104_857, 1_680_000, 1.05
CACHE_RATIO = 0.1
# Each step has a batch of its own: a cache has seen no key of it but by earlier batches.
WARM_UP, REPEATS, PROFILED = 24, 40, 10
BATCHES = WARM_UP + REPEATS + PROFILED

Ids = npt.NDArray[np.int64]


def draw(rng: np.random.Generator, rows: int, count: int, tables: int) -> Ids:
    """Returns keys [tables, count]: rank r with a probability like (r + 1) ** -SKEW, shuffled."""
    cumulative = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -SKEW)
    ranks = np.searchsorted(cumulative, rng.random((tables, count)) * cumulative[-1])
    return np.stack([rng.permutation(rows)[r] for r in ranks]).astype(np.int64)


def has_gpu() -> bool:
    """Whether PyTorch is here and finds a GPU."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


class Timer:
    """Times steps by events of a stream."""

    def __init__(self, torch: Any, stream: Any) -> None:
        self.torch, self.stream = torch, stream

    def median_ms(self, step: Callable[[int], None]) -> float:
        """Median over REPEATS of step(i), after WARM_UP of them."""
        events = self.torch.cuda.Event
        with self.torch.cuda.stream(self.stream):
            for i in range(WARM_UP):
                step(i)
            pairs = []
            for i in range(WARM_UP, WARM_UP + REPEATS):
                begin, end = events(enable_timing=True), events(enable_timing=True)
                begin.record(self.stream)
                step(i)
                end.record(self.stream)
                pairs.append((begin, end))
        self.stream.synchronize()
        return float(statistics.median(begin.elapsed_time(end) for begin, end in pairs))


def copy_bandwidth(torch: Any, timer: Timer) -> float:
    """Bytes/s of a device-to-device copy of 4 GiB, read and written."""
    source = torch.randint(0, 2**31, (1 << 29,), dtype=torch.int64, device="cuda")
    target = torch.empty_like(source)
    return float(2 * source.nbytes / (timer.median_ms(lambda _: target.copy_(source)) * 1e-3))


def print_results(results: list[dict[str, Any]]) -> None:
    """Prints a line for each result."""
    width = max(len(r["case"]) for r in results)
    for r in results:
        ratio = "" if r["ratio"] is None else f"   {r['ratio']:.2f} x {r['baseline']}"
        print(f"{r['case']:<{width}}  {r['metric']:<28} {r['value']:>10} {r['unit']}{ratio}")
