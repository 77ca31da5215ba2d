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
UNIT, SLOTS = np.float32(2.0**-20), 256  # of a commit_token


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
        admission={"kind": 0, "occurrences": 1, "expected_keys": 0, "error_rate": 0.01},
        expiry={
            "after_steps": 0,
            "rare_count": 0,
            "rare_after_steps": 0,
            "sweep_steps": 1000,
            "tombstones": 0,
        },
        cache={
            "rows": cache_rows,
            "bytes": 0,
            "policy": 0,
            "disk": "",
            **({"gpu": 0} if cache_rows > 0 else {}),
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


def check(
    kind: int,
    cache_rows: int,
    weights_type: int,
    device: TorchArrays | CupyArrays,
    window: int = 0,
) -> None:
    """Trains; window: batches that prefetching takes together, 0: it is not used."""
    random = np.random.default_rng(kind * 7 + cache_rows)
    label = f"{kind}-{cache_rows}-{weights_type}-{window}"
    plain = [make_table(f"p{label}-{w}", w, kind, 0, weights_type) for w in WIDTHS]
    tiered = [make_table(f"g{label}-{w}", w, kind, cache_rows, weights_type) for w in WIDTHS]
    threads = _native.Threads(3)
    counts = [int(random.integers(1, 6000)) for _ in range(STEPS)]
    batches = [
        [np.minimum(random.zipf(1.3, count), 20000).astype(np.int64) for _ in WIDTHS]
        for count in counts
    ]

    def prefetch(first: int) -> None:
        for t, table in enumerate(tiered):
            coming = [batch[t] for batch in batches[first : first + window]]
            table.prefetch(np.concatenate([*coming, np.empty(0, np.int64)]))

    if window > 0:
        prefetch(0)
    for step, (count, keys) in enumerate(zip(counts, batches, strict=True)):
        if window > 0 and step % window == 0:
            prefetch(step + window)
        for table in tiered if window > 0 and step % 3 == 2 else []:
            table.wait_for_prefetch()
        if window > 0 and step == STEPS // 2:
            for t, table in enumerate(tiered):
                some, times = np.unique(keys[t], return_counts=True)
                table.warm_up(some, times.astype(np.uint32), 0.5)
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
        assert window == 0 or cache_rows > 64 or b.statistics()["cache_prefetched"] > 0
    for table in plain + tiered:
        _native.drop_table(table.handle)


def check_commits(kind: int, cache_rows: int, device: TorchArrays | CupyArrays) -> None:
    """Gradients of two passes wait; a norm that is large enough changes no bit."""
    random = np.random.default_rng(kind * 7 + cache_rows)
    label = f"c{kind}-{cache_rows}"
    plain = [make_table(f"p{label}-{w}", w, kind, 0, 0) for w in WIDTHS]
    tiered = [make_table(f"g{label}-{w}", w, kind, cache_rows, 0) for w in WIDTHS]
    for step in range(STEPS):
        commit_token = np.zeros(SLOTS, np.float32)
        passes = []
        for slot, factor in ((step, 0.5), (step + 100, -2.0)):
            count = int(random.integers(1, 5000))
            # Each key once, so that the order of its sum is that of the passes.
            keys = [random.permutation(20000)[:count].astype(np.int64) for _ in WIDTHS]
            gradients = [random.standard_normal((count, w), np.float32) for w in WIDTHS]
            features = [_native.DeviceFeature(device.put(k), table=t) for t, k in enumerate(keys)]
            pooled = [device.put(np.zeros((count, w), np.float32)) for w in WIDTHS]
            ticket, _unknown = _native.device_forward(
                tiered, features, pooled, stream=device.stream
            )
            there = [device.put(g) for g in gradients]
            _native.device_backward(
                tiered, features, there, ticket=ticket, what=0, slot=slot, stream=device.stream
            )
            for t, table in enumerate(plain):
                rows = table.lookup(keys[t], True)
                assert (device.get(pooled[t]).view(np.uint32) == rows.view(np.uint32)).all()
            commit_token[slot] = UNIT * np.float32(factor)
            passes.append((keys, [np.float32(factor) * g for g in gradients]))
        _native.device_commit(
            tiered,
            commit_token,
            global_clip_norm=0.0 if step % 2 == 0 else 1e9,
            stream=device.stream,
        )
        for t, table in enumerate(plain):
            table.update(
                np.concatenate([keys[t] for keys, _ in passes]),
                np.concatenate([gradients[t] for _, gradients in passes]),
            )
    for a, b in zip(plain, tiered, strict=True):
        assert a.digest() == b.digest()
        assert a.step == b.step
    for table in plain + tiered:
        _native.drop_table(table.handle)


def check_norm(device: TorchArrays | CupyArrays) -> None:
    """Gradients of two tables are scaled down together."""
    plain = [make_table(f"pn{w}", w, 0, 0, 0) for w in (16, 7)]
    tables = [make_table(f"gn{w}", w, 0, 100, 0) for w in (16, 7)]
    keys = np.arange(500)
    features = [_native.DeviceFeature(device.put(keys), table=t) for t in range(2)]
    gradients = [np.full((500, w), 2.0, np.float32) for w in (16, 7)]
    before = [table.lookup(keys, True) for table in plain]
    there = [device.put(g) for g in gradients]
    norm = float(np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradients)))
    _native.device_backward(
        tables, features, there, ticket=0, global_clip_norm=norm / 4, stream=device.stream
    )
    for table, old in zip(tables, before, strict=True):
        np.testing.assert_allclose(table.lookup(keys), old - 0.1 * 0.5, rtol=1e-5, atol=1e-6)
    for table in plain + tables:
        _native.drop_table(table.handle)


def main() -> None:
    device = arrays()
    for kind in range(6):
        for cache_rows in (64, 4000, 100000):
            check(kind, cache_rows, 0, device)
        for cache_rows in (64, 4000):
            check_commits(kind, cache_rows, device)
    check(4, 4000, 1, device)
    check_norm(device)
    for window in (1, 4):
        for cache_rows in (64, 4000, 100000):
            check(2, cache_rows, 0, device, window)
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
