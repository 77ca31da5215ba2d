"""Worker: how fast this machine moves the bytes of a step with Adagrad.

Measured are the bandwidth of a copy, random reads and updates of lines that no cache holds, and
whole steps in which every pointer is known beforehand (`memory_floor.cc`, built with g++). From
the first three follows a floor: values, gradients and keys are streamed once; each distinct row
costs an index line, a read of its header and weights in the forward pass, and an update of its
whole line in the backward pass.
"""

from __future__ import annotations

import ctypes
import itertools
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from peers.worker import LEARNING_RATE, Request, measure, report, say, start
from peers.workload import FEATURES, Workload

HEADER_FLOATS = 4
INDEX_LINE_BYTES = 64
INDEX_BYTES_A_ROW = 16
COPY_BYTES = 256 * 2**20
RANDOM_LINES = 2**20
Lines = npt.NDArray[np.float32]


def build() -> ctypes.CDLL:
    """Builds and loads the loops."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "memory_floor.so"
        source = Path(__file__).with_suffix(".cc")
        flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
        subprocess.run(["g++", *flags, str(source), "-o", str(path)], check=True)
        loaded = ctypes.CDLL(str(path))
    loaded.read_lines.restype = ctypes.c_float
    return loaded


def pointer(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    """Returns the address of an array."""
    return ctypes.c_void_p(array.ctypes.data)


def sizes(*values: int) -> list[ctypes.c_size_t]:
    """Returns C sizes."""
    return [ctypes.c_size_t(value) for value in values]


def shortest(work: Callable[[], object]) -> float:
    """Returns the seconds of the shortest of five runs."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


class Memory:
    """The loops, on some threads.

    Args:
        threads: each takes an equal part of every loop.
    """

    def __init__(self, threads: int) -> None:
        self._loops = build()
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)

    def in_parts(self, count: int, work: Callable[[int, int], object]) -> None:
        """Runs work(first, last) over [0, count)."""
        ends = [count * i // self._threads for i in range(self._threads + 1)]
        if self._threads == 1:
            work(0, count)
            return
        for done in [self._pool.submit(work, a, b) for a, b in itertools.pairwise(ends)]:
            done.result()

    def copy_gigabytes_a_second(self) -> float:
        """Returns the bytes read and written a second by a copy that no cache holds."""
        source = np.ones(COPY_BYTES, np.uint8)
        target = np.zeros(COPY_BYTES, np.uint8)

        def part(first: int, last: int) -> None:
            np.copyto(target[first:last], source[first:last])

        return 2e-9 * COPY_BYTES / shortest(lambda: self.in_parts(COPY_BYTES, part))

    def nanoseconds_a_line(self, lines: Lines, floats: int, update: bool) -> float:
        """Returns the time to read the first `floats` of a random line, or to update all of it."""
        rng = np.random.default_rng(5)
        fresh = iter(rng.integers(0, len(lines), (5, RANDOM_LINES)))
        stride = lines.shape[1]

        def run() -> None:
            places = next(fresh)

            def part(first: int, last: int) -> None:
                if update:
                    self._loops.write_lines(
                        pointer(lines), *sizes(stride), pointer(places), *sizes(first, last)
                    )
                else:
                    self._loops.read_lines(
                        pointer(lines), *sizes(stride, floats), pointer(places), *sizes(first, last)
                    )

            self.in_parts(RANDOM_LINES, part)

        return 1e9 * shortest(run) / RANDOM_LINES

    def known_step(self, workload: Workload, lines: Lines) -> Callable[[int], None]:
        """Returns the step in which every pointer is known."""
        width = workload.dim
        gradients = workload.gradients().reshape(-1, width)
        out = np.empty_like(gradients)
        batches = [pointers_of(places) for places in places_of(workload)]

        def step(i: int) -> None:
            places, distinct, begins, order = batches[i]

            def forward(first: int, last: int) -> None:
                self._loops.forward(
                    pointer(lines),
                    *sizes(width),
                    pointer(places),
                    *sizes(first, last),
                    pointer(out),
                )

            def backward(first: int, last: int) -> None:
                self._loops.backward(
                    pointer(lines),
                    *sizes(width),
                    *(pointer(a) for a in (distinct, begins, order, gradients)),
                    ctypes.c_float(LEARNING_RATE["adagrad"]),
                    *sizes(first, last),
                )

            self.in_parts(len(places), forward)
            self.in_parts(len(distinct), backward)

        return step


def places_of(workload: Workload) -> list[Any]:
    """Returns the row of each lookup, numbered over all tables: int64 [N] a batch."""
    table = np.arange(FEATURES)[:, None] % workload.tables
    return [(ids + table * workload.rows_per_table).reshape(-1) for ids in workload.ids]


def pointers_of(places: Any) -> tuple[Any, Any, Any, Any]:
    """Returns places [N], distinct rows [U] in the order of first use, begins [U + 1], order [N].

    The lookups of distinct row u are order[begins[u]:begins[u + 1]].
    """
    distinct, first, inverse, counts = np.unique(
        places, return_index=True, return_inverse=True, return_counts=True
    )
    turn = np.argsort(first)
    rank = np.empty_like(turn)
    rank[turn] = np.arange(len(turn))
    order = np.argsort(rank[inverse], kind="stable")
    return places, distinct[turn], np.concatenate([[0], np.cumsum(counts[turn])]), order


def main(request: Request, workload: Workload) -> None:
    """Measures memory and reports the floor."""
    say("memory floor")
    memory = Memory(request.threads)
    rows = workload.tables * workload.rows_per_table
    copied = memory.copy_gigabytes_a_second()
    index = np.ones((rows * INDEX_BYTES_A_ROW // INDEX_LINE_BYTES, 16), np.float32)
    index_read = memory.nanoseconds_a_line(index, 16, update=False)
    lines = np.ones((rows, HEADER_FLOATS + 2 * workload.dim), np.float32)
    read_floats = HEADER_FLOATS + workload.dim
    line_read = memory.nanoseconds_a_line(lines, read_floats, update=False)
    line_update = memory.nanoseconds_a_line(lines, 0, update=True)

    unique = statistics.median(workload.unique_keys())
    values, keys = workload.gradients().nbytes, workload.ids[0].nbytes
    streamed = 2 * (values + keys)  # keys in both passes
    scattered = unique * (INDEX_LINE_BYTES + 4 * read_floats + 2 * lines[0].nbytes)
    moves = measure(memory.known_step(workload, lines), len(workload.ids), request.repeats)
    nanoseconds = index_read + line_read + line_update
    facts = {
        "copy_gb_s": copied,
        "index_read_ns": index_read,
        "line_read_ns": line_read,
        "line_update_ns": line_update,
        "streamed_bytes": streamed,
        "scattered_bytes": scattered,
        "floor_ms": streamed / copied / 1e6 + unique * nanoseconds / 1e6,
    }
    report("adagrad", "known pointers", {**facts, **moves})


if __name__ == "__main__":
    main(*start())
