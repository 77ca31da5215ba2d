"""How long is a training step of the embeddings, against Keras' own Embedding layers?

26 features, batch 4096, Zipf(1.05) keys out of a vocabulary, Adagrad; the loss is the mean of all
pooled values, so that the time is that of lookup, gradient and update. The baseline is one
`keras.layers.Embedding` a feature with a dense table of the whole vocabulary and Keras' Adagrad
(which sums gradients of duplicates and updates the rows that occur).

    python benchmarks/training_step.py [--vocabulary 100000] [--dim 32] [--repeats 30] [--json F]
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import click
import keras
import numpy as np
import tensorflow as tf

import hotrow

FEATURES, BATCH = 26, 4096


def batches(vocabulary: int, count: int) -> list[dict[str, tf.Tensor]]:
    """Returns `count` batches of keys: int64 [B] a feature."""
    weights = np.arange(1, vocabulary + 1, dtype=np.float64) ** -1.05
    cumulative = np.cumsum(weights / weights.sum())
    rng = np.random.default_rng(1)
    return [
        {
            f"f{i}": tf.constant(np.searchsorted(cumulative, rng.random(BATCH)), tf.int64)
            for i in range(FEATURES)
        }
        for _ in range(count)
    ]


def ours(update: str, dim: int) -> Any:
    """Returns the layer, every feature with its own table."""
    return hotrow.DistributedEmbedding(
        [
            hotrow.FeatureConfig(f"f{i}", hotrow.TableConfig(f"t{i}", dim, combiner="sum"))
            for i in range(FEATURES)
        ],
        update=update,  # type: ignore[arg-type]
    )


class Dense(keras.layers.Layer):  # type: ignore[misc]
    """One Keras Embedding a feature."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.tables = [keras.layers.Embedding(vocabulary, dim) for _ in range(FEATURES)]

    def call(self, keys: dict[str, tf.Tensor], training: bool = False) -> dict[str, tf.Tensor]:
        """Returns rows by feature, [B, D]."""
        return {f"f{i}": table(keys[f"f{i}"]) for i, table in enumerate(self.tables)}


def measure(layer: Any, data: list[dict[str, tf.Tensor]], repeats: int) -> tuple[float, float]:
    """Returns median wall and CPU milliseconds of a step."""
    layer(data[0], training=True)
    optimizer = keras.optimizers.Adagrad(0.05)
    optimizer.build(layer.trainable_variables)

    @tf.function
    def step(keys: dict[str, tf.Tensor]) -> None:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_mean(v) for v in layer(keys, training=True).values()])
        variables = layer.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)

    for keys in data:  # every row exists, every buffer has its size
        step(keys)
    wall, cpu = [], []
    for i in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        step(data[i % len(data)])
        wall.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.process_time() - used))
    return statistics.median(wall), statistics.median(cpu)


@click.command()
@click.option("--vocabulary", default=100_000, show_default=True)
@click.option("--dim", default=32, show_default=True)
@click.option("--repeats", default=30, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path))
def main(vocabulary: int, dim: int, repeats: int, json_path: Path | None) -> None:
    """Measures a training step and prints a table."""
    data = batches(vocabulary, 10)
    unique = sum(len(np.unique(v)) for v in data[0].values())
    conditions = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "tensorflow": tf.__version__,
        "features": FEATURES,
        "batch": BATCH,
        "dim": dim,
        "vocabulary": vocabulary,
        "unique_keys_a_batch": unique,
        "optimizer": "Adagrad",
        "repeats": repeats,
    }
    for name, value in conditions.items():
        print(f"{name:<20} {value}")
    cases = {
        "keras Embedding": Dense(vocabulary, dim),
        "hotrow update=step": ours("step", dim),
        "hotrow update=backward": ours("backward", dim),
    }
    print(f"\n{'case':<24} {'wall ms':>9} {'CPU ms':>9} {'wall ratio':>11}")
    results, baseline = [], 0.0
    for name, layer in cases.items():
        wall, cpu = measure(layer, data, repeats)
        baseline = baseline or wall
        print(f"{name:<24} {wall:>9.2f} {cpu:>9.2f} {wall / baseline:>11.2f}")
        for metric, value in (("wall", wall), ("cpu", cpu)):
            results.append(
                {
                    "case": name,
                    "metric": f"{metric}_a_step",
                    "value": value,
                    "unit": "ms",
                    "baseline": "keras Embedding",
                    "ratio": wall / baseline if metric == "wall" else None,
                }
            )
    if json_path is not None:
        json_path.write_text(json.dumps({"conditions": conditions, "results": results}, indent=1))


if __name__ == "__main__":
    main()
