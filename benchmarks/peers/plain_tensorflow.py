"""Worker: plain TensorFlow, a `tf.Variable` a table, `tf.gather` and sparse updates.

The optimizers do with an IndexedSlices gradient what TensorFlow's own do: `tf.unique` and
`tf.math.unsorted_segment_sum`, then an update of the rows that occur. "whole table" are the Adam
of Keras 2 and TensorFlow 1, which decay the moments of every row in every step, and Keras 3's
`Embedding` with Keras 3's optimizers, which make the gradient dense; few repeats are enough there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from peers.worker import ACCUMULATOR, EPSILON, LEARNING_RATE, Request, measure, report, say, start
from peers.workload import Workload

FEW = 3
BETA_1, BETA_2, ADAM_EPSILON = 0.9, 0.999, 1e-7
Apply = Callable[[tf.Tensor, tf.Tensor], None]  # (distinct ids [U], summed gradients [U, D])


def filled(rows: int, width: int, value: float) -> tf.Variable:
    """Returns a table: float32 [rows, width]."""
    return tf.Variable(tf.fill([rows, width], value))


def filled_like(table: tf.Variable, value: float) -> tf.Variable:
    """Returns optimizer state of the table's shape."""
    return filled(table.shape[0], table.shape[1], value)


def sgd(table: tf.Variable) -> Apply:
    """The same rate for all."""
    return lambda ids, g: table.scatter_sub(tf.IndexedSlices(LEARNING_RATE["sgd"] * g, ids))


def adagrad(table: tf.Variable) -> Apply:
    """TensorFlow's fused kernel for sparse gradients."""
    accumulator = filled_like(table, ACCUMULATOR)
    return lambda ids, g: tf.raw_ops.ResourceSparseApplyAdagradV2(
        var=table.handle,
        accum=accumulator.handle,
        lr=LEARNING_RATE["adagrad"],
        epsilon=EPSILON,
        grad=g,
        indices=ids,
    )


def rowwise_adagrad(table: tf.Variable) -> Apply:
    """One accumulator a row, by hand."""
    accumulator = tf.Variable(tf.fill(table.shape[:1], ACCUMULATOR))

    def apply(ids: tf.Tensor, g: tf.Tensor) -> None:
        accumulator.scatter_add(tf.IndexedSlices(tf.reduce_mean(tf.square(g), 1), ids))
        scale = LEARNING_RATE["rowwise_adagrad"] / tf.sqrt(tf.gather(accumulator, ids) + EPSILON)
        table.scatter_sub(tf.IndexedSlices(scale[:, None] * g, ids))

    return apply


def adam(table: tf.Variable, whole_table: bool = False) -> Apply:
    """Lazy: rows that do not occur keep their moments; else TensorFlow 1's and Keras 2's."""
    m, v = filled_like(table, 0.0), filled_like(table, 0.0)
    step = tf.Variable(0.0)

    def apply(ids: tf.Tensor, g: tf.Tensor) -> None:
        step.assign_add(1.0)
        correction = tf.sqrt(1.0 - BETA_2**step) / (1.0 - BETA_1**step)
        rate = LEARNING_RATE["adam"] * correction
        if whole_table:
            m.assign(m * BETA_1)
            m.scatter_add(tf.IndexedSlices((1.0 - BETA_1) * g, ids))
            v.assign(v * BETA_2)
            v.scatter_add(tf.IndexedSlices((1.0 - BETA_2) * tf.square(g), ids))
            table.assign_sub(rate * m / (tf.sqrt(v) + ADAM_EPSILON))
            return
        m_rows, v_rows = tf.gather(m, ids), tf.gather(v, ids)
        m_rows += (1.0 - BETA_1) * (g - m_rows)
        v_rows += (1.0 - BETA_2) * (tf.square(g) - v_rows)
        m.scatter_update(tf.IndexedSlices(m_rows, ids))
        v.scatter_update(tf.IndexedSlices(v_rows, ids))
        change = rate * m_rows / (tf.sqrt(v_rows) + ADAM_EPSILON)
        table.scatter_sub(tf.IndexedSlices(change, ids))

    return apply


OPTIMIZERS = {"sgd": sgd, "adagrad": adagrad, "rowwise_adagrad": rowwise_adagrad, "adam": adam}


def inputs(workload: Workload) -> tuple[list[list[tf.Tensor]], list[tf.Tensor]]:
    """Returns the ids of each table by batch, and the gradients of each table's rows.

    Features that share a table are one lookup: fewer ops than one a feature.
    """
    shape = (workload.tables, -1)
    batches = [[tf.constant(i) for i in batch.reshape(shape)] for batch in workload.ids]
    gradients = workload.gradients().reshape(*shape, workload.dim)
    return batches, [tf.constant(g) for g in gradients]


def run(
    workload: Workload,
    name: str,
    make: Callable[[tf.Variable], Apply],
    variant: str = "",
    repeats: int = FEW,
) -> None:
    """Measures gather, gradient and update by hand."""
    shape = (workload.rows_per_table, workload.dim)
    tables = [filled(*shape, 0.0) for _ in range(workload.tables)]
    optimizers = [make(table) for table in tables]
    batches, gradients = inputs(workload)
    say(f"TensorFlow {name} {variant}")

    @tf.function
    def step(ids: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            rows = [tf.gather(t, i) for t, i in zip(tables, ids, strict=True)]
        slices = tape.gradient(rows, tables, output_gradients=gradients)
        for apply, given in zip(optimizers, slices, strict=True):
            distinct, places = tf.unique(given.indices)
            count = tf.shape(distinct)[0]
            apply(distinct, tf.math.unsorted_segment_sum(given.values, places, count))
        return rows

    few = repeats == FEW
    facts = measure(lambda i: step(batches[i]), 1 if few else len(batches), repeats)
    probe = sum(
        float(tf.reduce_sum(tf.abs(tf.gather(t, i))))
        for t, i in zip(tables, batches[0], strict=True)
    )
    report(name, variant, {**facts, "probe": None if few else probe})


def run_keras(workload: Workload, name: str, optimizer: Any) -> None:
    """Measures Keras 3's Embedding layer with a Keras 3 optimizer."""
    shape = (workload.rows_per_table, workload.dim)
    layers = [
        keras.layers.Embedding(*shape, embeddings_initializer="zeros")
        for _ in range(workload.tables)
    ]
    for layer in layers:
        layer.build()
    variables = [v for layer in layers for v in layer.trainable_variables]
    optimizer.build(variables)
    batches, gradients = inputs(workload)
    say(f"TensorFlow {name} Keras")

    @tf.function
    def step(ids: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            rows = [layer(i) for layer, i in zip(layers, ids, strict=True)]
        given = tape.gradient(rows, variables, output_gradients=gradients)
        optimizer.apply(given, variables)
        return rows

    report(name, "Keras 3 Embedding", measure(lambda i: step(batches[i]), 1, FEW))


def main(request: Request, workload: Workload) -> None:
    """Measures the requested optimizers."""
    tf.config.threading.set_intra_op_parallelism_threads(request.threads)
    tf.config.threading.set_inter_op_parallelism_threads(request.threads)
    for name in request.optimizers:
        variant = "lazy" if name == "adam" else ""
        run(workload, name, OPTIMIZERS[name], variant, request.repeats)
        if name == "adam":
            run(workload, name, lambda table: adam(table, whole_table=True), "whole table")
        if name == "adagrad":
            keras_adagrad = keras.optimizers.Adagrad(LEARNING_RATE[name], ACCUMULATOR, EPSILON)
            run_keras(workload, name, keras_adagrad)


if __name__ == "__main__":
    main(*start())
