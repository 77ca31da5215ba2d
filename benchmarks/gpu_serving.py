"""What does a server gain from hot rows in a GPU's memory?

26 tables of dim 16 float32 with 100,000 rows each, Zipf 1.05, a feature each without pooling, as
for Criteo's data. A request of B rows looks up 26 B keys, and its rows end in the GPU's memory,
where the dense part runs. All rows are in RAM; `hits`: the share of lookups whose rows are on the
GPU, too.

- GPU: one copy of the keys, one launch, one wait; one more launch for the rows of RAM.
- RAM: rows are gathered on the CPU into pinned memory and copied to the GPU, one copy a feature, as
  TensorFlow does.

Times of one lookup from the call until the rows are on the GPU, from one thread; the two take turns
in the same run. CPU: of the calling thread.

    python benchmarks/gpu_serving.py [--build build/gpu] [--json F]

Needs a build of .ci/gpu-check, NumPy and PyTorch. Without a GPU it prints the estimates alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gpu_workload import has_gpu, print_results

TABLES, DIM, ROWS, SKEW = 26, 16, 100_000, 1.05
BATCHES = (1, 128, 1024)
SHARES = (1.0, 0.95, 0.5)
REQUESTS, WARM_UP = 300, 30
# Of the estimates: bytes/s of the bus in small copies; seconds of a launch with its wait, of a
# copy, of a key on the CPU (benchmarks/results/redis.md, 52 million rows/s), and of a wave of warps
# in the kernel.
BUS, LAUNCH, COPY, KEY_ON_CPU, WAVE = 20e9, 10e-6, 3e-6, 19e-9, 2e-6
WARPS = 132 * 52

Result = dict[str, Any]


def estimates() -> list[Result]:
    """Returns the times to expect, computed."""
    results = []
    for batch in BATCHES:
        keys = batch * TABLES
        gpu = COPY + keys * 8 / BUS + LAUNCH + -(-keys // WARPS) * WAVE
        ram = keys * KEY_ON_CPU + TABLES * COPY + keys * DIM * 4 / BUS
        for case, value, baseline in (("GPU", gpu, ram), ("RAM", ram, None)):
            results.append(
                {
                    "case": f"{case}, {batch} rows",
                    "metric": "computed time of a lookup",
                    "value": round(value * 1e6, 1),
                    "unit": "us",
                    "baseline": "RAM" if baseline else None,
                    "ratio": round(value / baseline, 2) if baseline else None,
                }
            )
    return results


class Served:
    """Tables with all rows in RAM, and some of them on the GPU."""

    def __init__(self, readers: Any) -> None:
        self.readers = readers
        rng = np.random.default_rng(1)
        facts = [(f"t{t}", DIM, "float32", 0.0, ROWS) for t in range(TABLES)]
        self.reader = readers.MemoryReader(facts)
        keys = np.arange(ROWS, dtype=np.int64)
        for table in range(TABLES):
            rows = rng.random((ROWS, DIM), dtype=np.float32)
            self.reader.put(table, keys, rows.view(np.uint8).reshape(ROWS, -1))
        self.cache = readers.HotRows(self.reader, rows=2 * TABLES * ROWS)
        self.lookup = readers.ServingLookup(self.reader, self.cache)
        for table in range(TABLES):
            self.lookup.lookup([(table, keys, None, None, 0)])
        cumulative = np.cumsum(np.arange(1, ROWS + 1, dtype=np.float64) ** -SKEW)
        self.share_of_first = cumulative / cumulative[-1]
        self.rng = rng

    def on_gpu(self, share: float) -> Any:
        """Returns hot rows with the keys that get this share of lookups, the smallest ones."""
        rows = self.readers.GpuRows(self.cache, 0, 2 * TABLES * ROWS * (DIM * 4 + 64))
        count = ROWS if share == 1.0 else int(np.searchsorted(self.share_of_first, share))
        for table in range(TABLES):
            rows.fill(table, np.arange(count, dtype=np.int64))
        return rows

    def request(self, batch: int) -> list[tuple[int, Any, None, None, int]]:
        """Returns a feature for each table, with keys of its own."""
        ranks = np.searchsorted(self.share_of_first, self.rng.random((TABLES, batch)))
        return [(t, ranks[t].astype(np.int64), None, None, 0) for t in range(TABLES)]


def times_of(run: Callable[[int], None]) -> tuple[float, float, float]:
    """Returns median and p99 of run(i), and CPU time, in microseconds."""
    for i in range(WARM_UP):
        run(i)
    taken = []
    used = time.thread_time()
    for i in range(REQUESTS):
        begin = time.perf_counter()
        run(i)
        taken.append(time.perf_counter() - begin)
    used = time.thread_time() - used
    p99 = float(np.quantile(taken, 0.99))
    return statistics.median(taken) * 1e6, p99 * 1e6, used / REQUESTS * 1e6


def measured(build: Path) -> list[Result]:
    """Returns what a GPU takes."""
    import torch

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from native_readers import FILE, load

    served = Served(load(build / FILE))
    stream = torch.cuda.Stream()
    results = []
    for share in SHARES:
        rows = served.on_gpu(share)
        for batch in BATCHES:
            requests = [served.request(batch) for _ in range(REQUESTS)]
            outputs = [torch.empty((batch, DIM), device="cuda") for _ in range(TABLES)]
            pinned = [torch.empty((batch, DIM), pin_memory=True) for _ in range(TABLES)]
            addresses = [output.data_ptr() for output in outputs]

            def on_gpu(
                i: int, requests: Any = requests, rows: Any = rows, to: Any = addresses
            ) -> None:
                served.lookup.lookup_on_gpu(requests[i], rows, to, stream.cuda_stream)
                stream.synchronize()

            def in_ram(
                i: int, requests: Any = requests, pinned: Any = pinned, outputs: Any = outputs
            ) -> None:
                found, _, _ = served.lookup.lookup(requests[i])
                with torch.cuda.stream(stream):
                    for t in range(TABLES):
                        pinned[t].copy_(torch.from_numpy(found[t]))
                        outputs[t].copy_(pinned[t], non_blocking=True)
                stream.synchronize()

            for name, run in (("GPU", on_gpu), ("RAM", in_ram)):
                median, p99, cpu = times_of(run)
                case = f"{name}, {batch} rows, {share:.0%} hits"
                for metric, value in (("median", median), ("p99", p99), ("CPU time", cpu)):
                    results.append(
                        {"case": case, "metric": f"{metric} of a lookup", "value": round(value, 1),
                         "unit": "us", "baseline": None, "ratio": None}
                    )  # fmt: skip
            ratio = results[-6]["value"] / results[-3]["value"]
            results[-6].update(baseline="RAM", ratio=round(ratio, 2))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=Path("build/gpu"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = estimates()
    if has_gpu():
        results += measured(arguments.build)
    else:
        print("no GPU: estimates alone; no lookup was run")
    print_results(results)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
