"""How long is a training step of the embeddings on a GPU, against its floor and other systems?

The configuration of a published benchmark (dynamicemb against FBGEMM's TBE, on one H100 of 80 GB):
10 tables of dim 128 float32, 104,857 lookups a table (1.05 million), Zipf 1.05 over 1.68 million
rows a table, no pooling. Published there, train step: FBGEMM 1.35 ms with Adam and 0.96 ms with
SGD, all in HBM; over host memory with other sizes 12.28 ms (dynamicemb) and 14.37 ms (FBGEMM).

Measured: all rows in HBM, and a cache of 10 % of them over host memory, with SGD and Adam; in the
same run torch.nn.EmbeddingBag(sparse=True), which has all in HBM, and Colossal-AI's cached
embedding (LFU over pinned host memory) as plain PyTorch. Each kernel's time beside the bytes that
it has to move, as a share of what a device-to-device copy reaches here.

    python benchmarks/gpu_step.py [--build build/gpu] [--scale 1.0] [--json F]

Needs a build of .ci/gpu-check, NumPy and PyTorch. Without a GPU it prints the floors alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gpu_peers import colossal, embedding_bags
from gpu_workload import (
    BATCHES,
    DIM,
    LOOKUPS,
    PROFILED,
    REPEATS,
    ROWS,
    SKEW,
    TABLES,
    WARM_UP,
    Ids,
    Timer,
    copy_bandwidth,
    draw,
    has_gpu,
    print_results,
)

PEAK = {"HBM": 4.8e12, "bus": 55e9}  # bytes/s: an H200's, and PCIe gen5 one way
HEADER = 16
PUBLISHED = {  # ms, FBGEMM's TBE on an H100; the cache there: 268 million rows, LRU
    ("all in HBM", "Adam"): 1.35,
    ("all in HBM", "SGD"): 0.96,
    ("10 % cache", "Adam"): 14.37,
    ("10 % cache", "SGD"): 4.15,
}
OPTIMIZERS = {"SGD": (0, 0), "Adam": (4, 2)}  # number in the core, state vectors

Result = dict[str, Any]


def floors(keys: Ids) -> list[Result]:
    """Returns the least times of one batch: bytes over peak rates."""
    lookups = keys.size
    distinct = sum(len(np.unique(k)) for k in keys)
    weights = DIM * 4
    results = []
    for name, (_, vectors) in OPTIMIZERS.items():
        scalars = 4 if name == "Adam" else 0
        row = HEADER + weights * (1 + vectors) + scalars
        moved = {
            "distinct keys": lookups * 12 + distinct * 20,
            "forward": distinct * weights + lookups * weights,
            "backward": lookups * weights + 2 * distinct * row,
        }
        total = sum(moved.values()) / PEAK["HBM"] * 1e3
        add = [("all in HBM", total)]
        # With the most used rows cached, 34 % of a batch's distinct rows are missing (docs/gpu.md).
        missing = round(0.34 * distinct)
        bus = missing * row / PEAK["bus"] * 1e3
        add.append(("10 % cache", total + bus))
        for case, value in add:
            results.append(
                {"case": f"{case}, {name}", "metric": "computed floor of a step",
                 "value": round(value, 3), "unit": "ms", "baseline": "peak rates of an H200",
                 "ratio": None}
            )  # fmt: skip
    return results


class Hotrow:
    """Tables of this repository."""

    def __init__(self, native: Any, optimizer: str, cache_rows: int) -> None:
        self.native = native
        self.threads = native.Threads(min(os.cpu_count() or 1, 32))
        kind, _ = OPTIMIZERS[optimizer]
        self.tables = [
            native.Table(
                handle=f"gpu_step-{optimizer}-{cache_rows}-{t}",
                name=f"t{t}",
                width=DIM,
                vocabulary_size=-1,
                default_value=0.0,
                init_kind=1,
                init_scale=0.05,
                seed=1,
                weights_type=0,
                state_type=0,
                shards=1,
                hashed=False,
                optimizer={
                    "kind": kind,
                    "learning_rate": 0.01,
                    "clip_row_norm": 0.0,
                    "l2": 0.0,
                    "weight_decay": 0.0,
                    "momentum": 0.0,
                    "nesterov": False,
                    "initial_accumulator": 0.1,
                    "epsilon": 1e-7,
                    "beta_1": 0.9,
                    "beta_2": 0.999,
                    "row_steps": True,
                    "l1": 0.0,
                    "ftrl_l2": 0.0,
                    "l2_shrinkage": 0.0,
                    "beta": 0.0,
                },
                admission={"kind": 0, "occurrences": 1, "expected_keys": 0, "error_rate": 0.01},
                expiry={
                    "after_steps": 0,
                    "rare_count": 0,
                    "rare_after_steps": 0,
                    "sweep_steps": 1000,
                },
                cache={"rows": cache_rows, "bytes": 0, "policy": 0, "disk": "", "gpu": 0},
            )
            for t in range(TABLES)
        ]

    def step(self, features: Any, pooled: Any, gradients: Any, stream: int) -> None:
        """A forward pass and its backward pass, on the stream."""
        ticket, _ = self.native.device_forward(
            self.tables, features, pooled, stream=stream, threads=self.threads
        )
        self.native.device_backward(
            self.tables, features, gradients, ticket=ticket, stream=stream, threads=self.threads
        )

    def close(self) -> None:
        """Frees the tables."""
        for table in self.tables:
            self.native.drop_table(table.handle)
        self.tables = []


def measure(build: Path, scale: float) -> tuple[dict[str, Any], list[Result]]:
    import torch

    sys.path.insert(0, str(build / "lib"))
    import _native  # type: ignore[import-not-found]

    stream = torch.cuda.Stream()
    timer = Timer(torch, stream)
    rows, lookups = int(ROWS * scale), int(LOOKUPS * scale)
    rng = np.random.default_rng(2026)
    keys = draw(rng, rows, lookups * BATCHES, TABLES)
    batches = np.split(keys, BATCHES, axis=1)
    copy = copy_bandwidth(torch, timer)
    results: list[Result] = [
        {"case": "device-to-device copy", "metric": "bandwidth", "value": round(copy / 1e12, 2),
         "unit": "TB/s", "baseline": None, "ratio": None}
    ]  # fmt: skip
    results += floors(batches[0])

    def note(case: str, optimizer: str, system: str, value: float) -> None:
        published = PUBLISHED.get((case, optimizer))
        results.append(
            {"case": f"{case}, {optimizer}", "metric": f"{system}: train step",
             "value": round(value, 3), "unit": "ms", "baseline": "FBGEMM on an H100, published",
             "ratio": None if published is None or scale != 1 else value / published}
        )  # fmt: skip

    with torch.cuda.stream(stream):
        gradients = [torch.randn((lookups, DIM), device="cuda") for _ in range(TABLES)]
        pooled = [torch.empty((lookups, DIM), device="cuda") for _ in range(TABLES)]
        ids = [[torch.tensor(k, device="cuda") for k in batch] for batch in batches]
    stream.synchronize()
    inputs = [[_native.DeviceFeature(k, table=t) for t, k in enumerate(b)] for b in ids]
    for optimizer in OPTIMIZERS:
        # Sets of 32 rows are not equally full: with 1.2 slots a row, 13 % of them overflow.
        for case, slots in (("all in HBM", int(rows * 1.6)), ("10 % cache", rows // 10)):
            hotrow = Hotrow(_native, optimizer, slots)
            fill(torch, _native, hotrow, rows, stream)

            def step(i: int, hotrow: Hotrow = hotrow) -> None:
                hotrow.step(inputs[i], pooled, gradients, stream.cuda_stream)

            note(case, optimizer, "hotrow", timer.median_ms(step))
            results += kernels(torch, step, stream, batches[0], optimizer, case, copy)
            hotrow.close()
        note(
            "all in HBM", optimizer, "torch.nn.EmbeddingBag",
            embedding_bags(torch, timer, ids, gradients, rows, optimizer),
        )  # fmt: skip
    note(
        "10 % cache", "SGD", "Colossal-AI in PyTorch", colossal(torch, timer, ids, gradients, rows)
    )
    conditions = {
        "device": torch.cuda.get_device_name(0), "torch": torch.__version__,
        "host": platform.processor() or platform.machine(), "tables": TABLES, "dim": DIM,
        "lookups a table": lookups, "rows a table": rows, "zipf": SKEW,
        "batches": BATCHES, "repeats": REPEATS,
    }  # fmt: skip
    return conditions, results


def fill(torch: Any, native: Any, hotrow: Hotrow, rows: int, stream: Any) -> None:
    """Makes all rows, the most used last."""
    piece = 1 << 18
    out = [torch.empty((piece, DIM), device="cuda") for _ in range(TABLES)]
    for first in range(0, rows, piece):
        count = min(piece, rows - first)
        keys = torch.arange(first, first + count, device="cuda")
        torch.cuda.synchronize()
        features = [native.DeviceFeature(keys, table=t) for t in range(TABLES)]
        native.device_forward(
            hotrow.tables,
            features,
            [o[:count] for o in out],
            stream=stream.cuda_stream,
            threads=hotrow.threads,
        )
        stream.synchronize()


def kernels(
    torch: Any, step: Callable[[int], None], stream: Any, keys: Ids, optimizer: str, case: str,
    copy: float,
) -> list[Result]:  # fmt: skip
    """Returns the times of kernels in a step, and the share of the copy's bandwidth they reach."""
    lookups, distinct = keys.size, sum(len(np.unique(k)) for k in keys)
    row = HEADER + DIM * 4 * (1 + OPTIMIZERS[optimizer][1])
    bytes_of = {
        "pool_pieces": (lookups + distinct) * DIM * 4,
        "update_rows": lookups * DIM * 4 + 2 * distinct * row,
        "insert_keys": lookups * 8,
        "probe": distinct * (8 + 128 + HEADER),
    }
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for i in range(WARM_UP + REPEATS, BATCHES):
            step(i)
        stream.synchronize()
    results = []
    for event in sorted(profile.key_averages(), key=lambda e: -e.device_time_total)[:14]:
        milliseconds = event.device_time_total / PROFILED * 1e-3
        known = next((n for name, n in bytes_of.items() if name in event.key), None)
        share = None if known is None else known / (milliseconds * 1e-3) / copy
        results.append(
            {"case": f"{case}, {optimizer}", "metric": f"kernel {event.key[:60]}",
             "value": round(milliseconds, 4), "unit": "ms a step",
             "baseline": "the copy's bandwidth", "ratio": share}
        )  # fmt: skip
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build/gpu"))
    parser.add_argument("--scale", type=float, default=1.0, help="of rows and lookups")
    parser.add_argument("--json", type=Path, help="where the results go as JSON")
    options = parser.parse_args()
    if has_gpu():
        conditions, results = measure(options.build, options.scale)
    else:
        rows, lookups = int(ROWS * options.scale), int(LOOKUPS * options.scale)
        conditions = {
            "device": "none: not yet run; floors are computed for one H200",
            "tables": TABLES, "dim": DIM, "lookups a table": lookups, "rows a table": rows,
            "zipf": SKEW,
        }  # fmt: skip
        results = floors(draw(np.random.default_rng(2026), rows, lookups, TABLES))
    for name, value in conditions.items():
        print(f"{name}: {value}")
    print_results(results)
    if not has_gpu():
        print("not yet run: no GPU, or no PyTorch that sees one")
    if options.json is not None:
        options.json.write_text(
            json.dumps({"conditions": conditions, "results": results}, indent=1)
        )


if __name__ == "__main__":
    main()
