"""Trains the same tables on a GPU and in memory, and compares every bit.

Run in the folder of _native: `python device_steps_program.py`. Prints `same`. Needs NumPy, and
PyTorch or CuPy; no TensorFlow.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import numpy as np

sys.path.insert(0, ".")
import _native  # type: ignore[import-not-found]

WIDTHS = (16, 128, 7)
STEPS = 12


def make_table(name: str, width: int, kind: int, cache_rows: int, weights_type: int) -> Any:
    return _native.Table(
        handle=name,
        name=f"table{width}",
        width=width,
        vocabulary_size=-1,
        default_value=0.0,
        init_kind=1,
        init_scale=0.1,
        seed=1,
        weights_type=weights_type,
        state_type=weights_type,
        shards=1,
        hashed=False,
        optimizer={
            "kind": kind,
            "learning_rate": 0.1,
            "clip_row_norm": 0.0,
            "l2": 0.0,
            "weight_decay": 0.0,
            "momentum": 0.9,
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
        admission={"kind": 0, "sightings": 1, "expected_keys": 0, "error_rate": 0.01},
        expiry={"after_steps": 0, "rare_count": 0, "rare_after_steps": 0, "sweep_steps": 1000},
        cache={
            "rows": cache_rows,
            "bytes": 0,
            "policy": 0,
            "disk": "",
            "device": int(cache_rows > 0),
        },
    )


class TorchArrays:
    """Arrays of PyTorch, on a stream of its own."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.own = torch.cuda.Stream()
        self.stream = self.own.cuda_stream

    def put(self, values: Any) -> Any:
        with self.torch.cuda.stream(self.own):
            return self.torch.from_numpy(values).to("cuda")

    def get(self, values: Any) -> Any:
        self.own.synchronize()
        return values.cpu().numpy()


class CupyArrays:
    """Arrays of CuPy, on a stream of its own."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.own = cupy.cuda.Stream(non_blocking=True)
        self.stream = self.own.ptr

    def put(self, values: Any) -> Any:
        with self.own:
            return self.cupy.asarray(values)

    def get(self, values: Any) -> Any:
        self.own.synchronize()
        return self.cupy.asnumpy(values)


def arrays() -> TorchArrays | CupyArrays:
    try:
        return TorchArrays()
    except ImportError:
        return CupyArrays()


def check(kind: int, cache_rows: int, weights_type: int, device: TorchArrays | CupyArrays) -> None:
    random = np.random.default_rng(kind * 7 + cache_rows)
    label = f"{kind}-{cache_rows}-{weights_type}"
    plain = [make_table(f"p{label}-{w}", w, kind, 0, weights_type) for w in WIDTHS]
    tiered = [make_table(f"g{label}-{w}", w, kind, cache_rows, weights_type) for w in WIDTHS]
    threads = _native.Threads(3)
    for _ in range(STEPS):
        count = int(random.integers(1, 6000))
        keys = [np.minimum(random.zipf(1.3, count), 20000).astype(np.int64) for _ in WIDTHS]
        gradients = [random.standard_normal((count, w), np.float32) for w in WIDTHS]
        features = [_native.DeviceFeature(device.put(k), table=t) for t, k in enumerate(keys)]
        pooled = [device.put(np.full((count, w), np.nan, np.float32)) for w in WIDTHS]
        ticket, _unknown = _native.device_forward(tiered, features, pooled, stream=device.stream)
        there = [device.put(g) for g in gradients]
        _native.device_backward(
            tiered, features, there, ticket=ticket, stream=device.stream, threads=threads
        )
        for t, table in enumerate(plain):
            rows = table.lookup(keys[t], True)
            assert (device.get(pooled[t]).view(np.uint32) == rows.view(np.uint32)).all()
            table.update(keys[t], gradients[t])
    for a, b in zip(plain, tiered, strict=True):
        assert a.digest() == b.digest()
        assert a.step == b.step
        assert (a.lookup(keys[0]) == b.lookup(keys[0])).all()
    for table in plain + tiered:
        _native.drop_table(table.handle)


def main() -> None:
    device = arrays()
    for kind in range(6):
        for cache_rows in (64, 4000, 100000):
            check(kind, cache_rows, 0, device)
    check(4, 4000, 1, device)
    call = (
        [make_table("refused", 4, 0, 0, 0)],
        [_native.DeviceFeature(device.put(np.arange(3)))],
        [device.put(np.zeros((3, 4), np.float32))],
    )
    with contextlib.suppress(RuntimeError):
        _native.device_forward(*call)
        raise AssertionError("a table in RAM took keys on a GPU")
    print("same")


if __name__ == "__main__":
    main()
