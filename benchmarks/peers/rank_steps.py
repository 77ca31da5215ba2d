"""Trains a layer of Criteo-shaped tables on this rank and writes how long its steps took.

A program for mpiexec: `-m peers.rank_steps OUT.json DIM BATCH STEPS SHARDING PREFETCH`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import hotrow
from hotrow.ops.ranks import Ranks, start_ranks
from peers.workload import FEATURES, hash_keys, zipf_ranks

ROWS, WARM, TIMEOUT_SECONDS = 100_000, 10, 120.0


def layer_of(dim: int, sharding: Any, ranks: Ranks) -> hotrow.DistributedEmbedding:
    """Returns 26 tables of one column each, with Adagrad."""
    features = [
        hotrow.FeatureConfig(
            f"C{i}",
            hotrow.TableConfig(
                f"C{i}",
                dim,
                combiner="sum",
                sharding=sharding,
                optimizer=hotrow.Adagrad(0.05),
            ),
        )
        for i in range(FEATURES)
    ]
    return hotrow.DistributedEmbedding(features, update="backward", ranks=ranks)


def main() -> None:
    """Runs the steps."""
    out, dim, batch, steps, sharding, prefetch = sys.argv[1:]
    with start_ranks(TIMEOUT_SECONDS) as ranks:
        result = run(ranks, int(dim), int(batch), int(steps), sharding, prefetch == "prefetch")
        gathered = ranks.all_gather(np.frombuffer(json.dumps(result).encode(), np.uint8), "results")
        if ranks.is_first:
            Path(out).write_text(json.dumps([json.loads(t.tobytes()) for t in gathered]))


def run(
    ranks: Ranks, dim: int, batch: int, steps: int, sharding: str, prefetch: bool
) -> dict[str, Any]:
    """Returns milliseconds a step: wall, CPU, and of each stage; and bytes sent."""
    layer = layer_of(dim, sharding, ranks)
    rng = np.random.default_rng(3)
    first, last = (batch * r // ranks.size for r in (ranks.rank, ranks.rank + 1))
    batches = []
    for _ in range(steps + WARM):
        keys = {f"C{i}": hash_keys(zipf_ranks(rng, ROWS, batch))[first:last] for i in range(26)}
        batches.append({name: tf.constant(values) for name, values in keys.items()})

    @tf.function
    def step(inputs: Any) -> None:
        with tf.GradientTape() as tape:
            rows = layer(inputs, training=True)
            loss = tf.add_n([tf.reduce_sum(values) for values in rows.values()])
        (gradient,) = tape.gradient(loss, [layer.anchor])
        layer.anchor.assign(gradient)

    walls = []
    before: dict[str, dict[str, int]] = {}
    cpu = 0.0
    if prefetch and ranks.size > 1:
        layer.prefetch(batches[:1])
    for number, inputs in enumerate(batches):
        if number == WARM:
            before, cpu = ranks.stage_counts(), time.process_time()
        begin = time.perf_counter()
        if prefetch and ranks.size > 1:
            layer.prefetch(batches[number + 1 : number + 2])
        step(inputs)
        walls.append(time.perf_counter() - begin)
    cpu = time.process_time() - cpu
    stages = {}
    for name, count in ranks.stage_counts().items():
        of = {k: v - before.get(name, {}).get(k, 0) for k, v in count.items()}
        stages[name] = {
            "ms": of["nanoseconds"] / 1e6 / steps,
            "bytes": of["bytes_sent"] / steps,
        }
    wall = 1e3 * statistics.median(walls[WARM:])
    return {"wall_ms": wall, "cpu_ms": 1e3 * cpu / steps, "stages": stages}


main()
