"""Worker: TensorFlow Recommenders Addons' dynamic embedding, a cuckoo hash table on the CPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de
import tf_keras

from peers.worker import (
    ACCUMULATOR,
    EPSILON,
    LEARNING_RATE,
    Request,
    measure,
    report,
    say,
    start,
    unavailable,
)
from peers.workload import Workload

FILL_SECONDS = 180
OPTIMIZERS = {
    # The legacy classes: with the new ones, TFRA updates the slots of all tables for each table.
    "adagrad": lambda: tf_keras.optimizers.legacy.Adagrad(
        LEARNING_RATE["adagrad"], initial_accumulator_value=ACCUMULATOR, epsilon=EPSILON
    ),
    "adam": lambda: tf_keras.optimizers.legacy.Adam(LEARNING_RATE["adam"], epsilon=EPSILON),
}


def fill(workload: Workload, table: Any, value: float) -> None:
    """Inserts all keys, unless that takes too long: a warm-up step inserts those it needs."""
    deadline = time.monotonic() + FILL_SECONDS / workload.tables
    for keys in workload.all_keys():
        if time.monotonic() > deadline:
            say(f"TFRA: gave up filling at {int(table.size())} rows")
            return
        table.upsert(tf.constant(keys), tf.fill([len(keys), workload.dim], value))


def run(request: Request, workload: Workload, name: str) -> None:
    """Measures one optimizer."""
    if name not in OPTIMIZERS:
        unavailable(name, "not measured with TFRA")
        return
    optimizer = de.DynamicEmbeddingOptimizer(OPTIMIZERS[name]())
    layers = [
        de.keras.layers.Embedding(
            workload.dim,
            initializer=tf_keras.initializers.Zeros(),
            devices=["/CPU:0"],
            name=f"{name}{i}",
            init_capacity=workload.rows_per_table,
        )
        for i in range(workload.tables)
    ]
    shape = (workload.tables, -1)
    batches = [[tf.constant(k) for k in batch.reshape(shape)] for batch in workload.keys]
    gradients = [tf.constant(g) for g in workload.gradients().reshape(*shape, workload.dim)]
    variables = [layer.shadow for layer in layers]

    @tf.function
    def step(keys: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            rows = [layer(k) for layer, k in zip(layers, keys, strict=True)]
        given = tape.gradient(rows, variables, output_gradients=gradients)
        optimizer.apply_gradients(zip(given, variables, strict=True))
        return rows

    empty = [tf.zeros([0], tf.int64)] * workload.tables
    nothing = [tf.zeros([0, workload.dim])] * workload.tables
    with tf.GradientTape() as tape:  # makes the optimizer's tables
        rows = [layer(k) for layer, k in zip(layers, empty, strict=True)]
    given = tape.gradient(rows, variables, output_gradients=nothing)
    optimizer.apply_gradients(zip(given, variables, strict=True))
    optimizer.iterations.assign(0)
    for layer in layers:
        fill(workload, layer.params, 0.0)
        for slot in layer.optimizer_vars:
            fill(workload, slot, ACCUMULATOR if name == "adagrad" else 0.0)
    count = sum(int(layer.params.size()) for layer in layers)
    say(f"TFRA {name}: {count} rows")
    facts = measure(lambda i: step(batches[i]), len(batches), request.repeats)
    probe = sum(
        float(tf.reduce_sum(tf.abs(layer.params.lookup(k))))
        for layer, k in zip(layers, batches[0], strict=True)
    )
    report(name, "", {**facts, "probe": probe, "rows": count})


def main(request: Request, workload: Workload) -> None:
    """Measures the requested optimizers."""
    tf.config.threading.set_intra_op_parallelism_threads(request.threads)
    tf.config.threading.set_inter_op_parallelism_threads(request.threads)
    for name in request.optimizers:
        run(request, workload, name)


if __name__ == "__main__":
    main(*start())
