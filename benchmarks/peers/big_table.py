"""Trains Wide & Deep with one large deep table, in a process of its own.

`python -m peers.big_table CASE` takes a `Case` as JSON and writes what it measured to stdout.
F features of batch B draw Zipf keys from the same R rows; S steps.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf

import hotrow
from peers.workload import FEATURES, Ids, hash_keys, zipf_ranks

CHUNK = 65_536
WIDE_DIM = 1


@dataclass(frozen=True)
class Case:
    """What is trained.

    Attributes:
        rows: R of the deep and of the wide table.
        dim: of the deep table.
        hidden: widths of the deep part.
        batch: B.
        steps: S measured ones, after `warm_steps`.
        prefetch: batches of a window, 0: none.
        cache_rows: 0: no cache.
        disk: directory of the deep table's lines, "": in memory.
        keys: directory of what `write_keys` wrote.
        embedding_only: no model; every looked-up row gets the same gradient.
        threads: of TensorFlow.
    """

    rows: int
    dim: int
    hidden: list[int]
    batch: int
    steps: int
    warm_steps: int
    prefetch: int
    cache_rows: int
    disk: str
    keys: str
    embedding_only: bool
    threads: int


def write_keys(case: Case, sample: int) -> None:
    """Writes the keys of all steps, int64 [warm + S, F, B], and the counted keys of a sample.

    In a process of its own, since it takes more memory than training may.

    Args:
        case: whose keys; they go to its directory.
        sample: batches counted for the warm-up of the cache.
    """

    def batches(count: int, seed: int) -> Ids:
        ranks = zipf_ranks(np.random.default_rng(seed), case.rows, count * FEATURES * case.batch)
        # Rows are not in the order of their popularity.
        ids = (ranks * 2_654_435_761 + 12_345) % case.rows
        return hash_keys(ids).reshape(count, FEATURES, case.batch)

    to = Path(case.keys)
    np.save(to / "steps.npy", batches(case.warm_steps + case.steps, 1))
    keys, counts = np.unique(batches(sample, 9), return_counts=True)
    np.save(to / "sample.npy", keys)
    np.save(to / "counts.npy", counts.astype(np.uint32))


class WideDeep:
    """The model, its tables and its training step."""

    def __init__(self, case: Case) -> None:
        cache = (
            hotrow.Cache(rows=case.cache_rows, disk=case.disk or None) if case.cache_rows else None
        )
        deep = hotrow.TableConfig(
            "deep",
            case.dim,
            optimizer=hotrow.Adagrad(0.05),
            initializer=hotrow.Uniform(0.05),
            cache=cache,
        )
        wide = hotrow.TableConfig("wide", WIDE_DIM, optimizer=hotrow.Adagrad(0.05))
        features = [hotrow.FeatureConfig(f"d{f}", deep) for f in range(FEATURES)]
        if not case.embedding_only:
            features += [hotrow.FeatureConfig(f"w{f}", wide) for f in range(FEATURES)]
        self.case = case
        self.layer = hotrow.DistributedEmbedding(features, seed=3, update="backward")
        self.tables = self.layer.tables
        layers = [
            keras.layers.Dense(
                width, "relu", kernel_initializer=keras.initializers.GlorotUniform(seed=width)
            )
            for width in case.hidden
        ]
        layers.append(
            keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed=1))
        )
        self.tower = keras.Sequential([keras.Input((FEATURES * case.dim,)), *layers])
        variables = [*self.layer.trainable_variables]
        if not case.embedding_only:
            variables += self.tower.trainable_variables
        self.optimizer = keras.optimizers.Adam(0.001)
        self.optimizer.build(variables)
        self.variables = variables
        self.step = tf.function(self._embedding_step if case.embedding_only else self._step)

    def insert_all(self) -> None:
        """Gives every key its row."""
        for first in range(0, self.case.rows, CHUNK):
            keys = hash_keys(np.arange(first, min(first + CHUNK, self.case.rows)))
            for table in self.tables.values():
                table.lookup(keys, insert=True)

    def _step(self, keys: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            inputs = {f"d{f}": keys[f] for f in range(FEATURES)}
            inputs |= {f"w{f}": keys[f] for f in range(FEATURES)}
            rows = self.layer(inputs, training=True)
            deep = self.tower(tf.concat([rows[f"d{f}"] for f in range(FEATURES)], axis=1))
            wide = tf.add_n([rows[f"w{f}"] for f in range(FEATURES)])
            logits = (deep + wide)[:, 0]
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
        self.optimizer.apply(tape.gradient(loss, self.variables), self.variables)
        return loss

    def _embedding_step(self, keys: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            rows = self.layer({f"d{f}": keys[f] for f in range(FEATURES)}, training=True)
        given = {name: tf.fill(tf.shape(value), 1e-2) for name, value in rows.items()}
        gradients = tape.gradient(rows, self.variables, output_gradients=given)
        self.optimizer.apply(gradients, self.variables)
        return tf.reduce_mean(labels)

    def digest(self) -> str:
        """Returns a digest of all that was learned."""
        total = hashlib.sha256()
        for name in sorted(self.tables):
            total.update(self.tables[name].digest().encode())
        for variable in self.tower.trainable_variables:
            total.update(np.asarray(variable).tobytes())
        return total.hexdigest()


def run(case: Case) -> dict[str, Any]:
    """Trains, and returns what was measured."""
    tf.config.threading.set_intra_op_parallelism_threads(case.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()
    model = WideDeep(case)
    started = time.perf_counter()
    model.insert_all()
    inserted = time.perf_counter() - started
    table = model.tables["deep"]
    read_from = Path(case.keys)
    if case.cache_rows:
        table.warm_up(np.load(read_from / "sample.npy"), np.load(read_from / "counts.npy"), 0.7)
    keys = np.load(read_from / "steps.npy", mmap_mode="r")
    labels = (np.random.default_rng(2).random((len(keys), case.batch)) < 0.25).astype(np.float32)

    def window(number: int) -> None:
        part = keys[number * case.prefetch : (number + 1) * case.prefetch]
        table.prefetch(part.reshape(-1))

    walls, used, losses = [], [], []
    before: dict[str, int] = {}
    for step, (batch, label) in enumerate(zip(keys, labels, strict=True)):
        if step == case.warm_steps:
            before = table.statistics()
        cpu, wall = time.process_time(), time.perf_counter()
        if case.prefetch and step % case.prefetch == 0:
            if step == 0:
                window(0)
            window(step // case.prefetch + 1)
        losses.append(float(model.step(tf.constant(np.asarray(batch)), tf.constant(label))))
        walls.append(time.perf_counter() - wall)
        used.append(time.process_time() - cpu)
    after = table.statistics()
    walls, used = walls[case.warm_steps :], used[case.warm_steps :]
    counted = {name: (after[name] - before[name]) / case.steps for name in after}
    started = time.perf_counter()
    digest = model.digest()
    return {
        "insert_s": inserted,
        "step_ms": 1e3 * sum(walls) / case.steps,
        "median_ms": 1e3 * float(np.median(walls)),
        "slowest_ms": 1e3 * max(walls),
        "cpu_ms": 1e3 * sum(used) / case.steps,
        "distinct": float(np.mean([len(np.unique(batch)) for batch in keys[case.warm_steps :]])),
        "hits": counted["cache_hits"],
        "misses": counted["cache_misses"],
        "ahead": counted["cache_prefetched"],
        "stall_ms": counted["cache_stall_ns"] / 1e6,
        "lines_read": counted["disk_lines_read"],
        "lines_written": counted["disk_lines_written"],
        "disk_gb": after["disk_bytes"] / 1e9,
        "table_mb": table.bytes / 2**20,
        "rows_gb": table.size * (16 + 8 * case.dim) / 1e9,
        "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "last_loss": losses[-1],
        "digest": digest,
        "digest_s": time.perf_counter() - started,
    }


if __name__ == "__main__":
    json.dump(run(Case(**json.loads(sys.argv[1]))), sys.stdout)
