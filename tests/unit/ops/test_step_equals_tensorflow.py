"""One step of fused lookup, gradient and optimizer equals plain TensorFlow to 1e-6."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import hotrow


def pooled(rows, splits, weights, combiner):
    """Pools the rows [N, D] of samples; `splits` [B + 1], `weights` [N]."""
    if combiner is None:
        return rows
    ids = np.repeat(np.arange(len(splits) - 1), np.diff(splits))
    total = tf.math.unsorted_segment_sum(rows * weights[:, None], ids, len(splits) - 1)
    if combiner == "sum":
        return total
    powers = weights if combiner == "mean" else weights * weights
    divisor = tf.math.unsorted_segment_sum(powers, ids, len(splits) - 1)
    if combiner == "sqrtn":
        divisor = tf.sqrt(divisor)
    return tf.math.divide_no_nan(total, divisor[:, None])


def optimizer_step(config, weights, state, gradient):
    """Keras' SGD and Adagrad on dense float32 [R, D]; rows without gradient have gradient 0."""
    optimizer = config.optimizer
    if type(optimizer).__name__ == "SGD":
        return weights - optimizer.learning_rate * gradient, state
    state = state + gradient**2
    step = optimizer.learning_rate * gradient / np.sqrt(state + optimizer.epsilon)
    return weights - step, state


OPTIMIZERS = [hotrow.SGD(0.3), hotrow.Adagrad(0.2, initial_accumulator_value=0.05)]
CLOSE = {"rtol": 1e-6, "atol": 1e-6}
KEYS = st.integers(-6, 6)  # few, so that duplicates are the rule


@st.composite
def features(draw, samples, dims):
    """One feature: kind, keys, splits, weights, table, combiner."""
    kind = draw(st.sampled_from(["vector", "matrix", "ragged", "sparse"]))
    combiner = draw(st.sampled_from(["sum", "mean", "sqrtn", None]))
    if kind == "sparse" and combiner is None:
        combiner = "sum"
    if kind == "vector":
        lengths = [1] * samples
    elif kind == "matrix":
        lengths = [draw(st.integers(1, 3))] * samples
    else:
        lengths = draw(st.lists(st.integers(0, 4), min_size=samples, max_size=samples))
    keys = draw(st.lists(KEYS, min_size=sum(lengths), max_size=sum(lengths)))
    weights = None
    if draw(st.booleans()):
        value = st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.5])
        weights = np.array(
            draw(st.lists(value, min_size=len(keys), max_size=len(keys))), np.float32
        )
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    table = draw(st.integers(0, len(dims) - 1))
    return kind, combiner, np.array(keys, np.int64), splits, weights, table


def as_input(kind, values, splits):
    if kind == "vector":
        return tf.constant(values)
    if kind == "matrix":
        return tf.reshape(tf.constant(values), [len(splits) - 1, -1])
    ragged = tf.RaggedTensor.from_row_splits(values, splits)
    if kind == "ragged":
        return ragged
    sparse = ragged.to_sparse()
    return tf.SparseTensor(sparse.indices, values, sparse.dense_shape)


def flat_output(value):
    value = value.flat_values if isinstance(value, tf.RaggedTensor) else value
    return tf.reshape(value, [-1, value.shape[-1]])


@settings(deadline=None, max_examples=60)
@given(data=st.data())
@pytest.mark.parametrize(
    ("optimizer", "update"),
    [
        pytest.param(OPTIMIZERS[0], "step", id="SGD-step"),
        pytest.param(OPTIMIZERS[1], "backward", id="Adagrad-backward"),
        pytest.param(OPTIMIZERS[0], "backward", id="SGD-backward", marks=pytest.mark.slow),
        pytest.param(OPTIMIZERS[1], "step", id="Adagrad-step", marks=pytest.mark.slow),
    ],
)
def test_step_equals_tensorflow(optimizer, update, data):
    dims = [3, 5]
    samples = data.draw(st.integers(1, 5))
    drawn = data.draw(st.lists(features(samples, dims), min_size=1, max_size=4))
    shards = data.draw(st.integers(1, 3))
    tables = [
        hotrow.TableConfig(f"t{i}", dim, optimizer=optimizer, shards=shards)
        for i, dim in enumerate(dims)
    ]
    layer = hotrow.DistributedEmbedding(
        [
            hotrow.FeatureConfig(f"f{i}", tables[table], combiner)
            for i, (_, combiner, _, _, _, table) in enumerate(drawn)
        ],
        seed=5,
        update=update,
    )
    inputs = {f"f{i}": as_input(kind, keys, s) for i, (kind, _, keys, s, _, _) in enumerate(drawn)}
    weights = {
        f"f{i}": as_input(kind, w, s)
        for i, (kind, _, _, s, w, _) in enumerate(drawn)
        if w is not None
    }

    # Ours.
    with tf.GradientTape() as tape:
        outputs = layer(inputs, weights=weights or None, training=True)
        flat = [flat_output(outputs[f"f{i}"]) for i in range(len(drawn))]
        loss = tf.add_n([tf.reduce_sum(tf.sin(o * (i + 1))) for i, o in enumerate(flat)])
    variables = layer.trainable_variables
    gradients = tape.gradient(loss, variables)
    keras.optimizers.SGD(0.1).apply_gradients(zip(gradients, variables, strict=True))

    # TensorFlow's, on dense tables of all keys.
    everything = np.arange(-6, 7, dtype=np.int64)
    start = {}
    for table in tables:
        fresh = hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", table)], seed=5)
        start[table.name] = fresh.tables[table.name].lookup(everything, insert=True)
    dense = {name: tf.Variable(rows) for name, rows in start.items()}
    with tf.GradientTape() as tape:
        expected = []
        for _, combiner, keys, splits, w, table in drawn:
            rows = tf.gather(dense[f"t{table}"], keys + 6)
            w = np.ones(len(keys), np.float32) if w is None else w
            expected.append(pooled(rows, splits, w, combiner))
        loss = tf.add_n([tf.reduce_sum(tf.sin(o * (i + 1))) for i, o in enumerate(expected)])
    dense_gradients = tape.gradient(loss, dense)

    for ours, theirs in zip(flat, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), **CLOSE)
    for table in tables:
        if table.name not in layer.tables:
            continue
        gradient = dense_gradients[table.name]
        gradient = 0 if gradient is None else tf.convert_to_tensor(gradient).numpy()
        state = np.full_like(start[table.name], getattr(optimizer, "initial_accumulator_value", 0))
        after, state = optimizer_step(table, start[table.name], state, gradient)
        for key, line in dict_of(layer.tables[table.name]).items():
            np.testing.assert_allclose(line[: table.embedding_dim], after[key + 6], **CLOSE)
            if len(line) > table.embedding_dim:
                np.testing.assert_allclose(line[table.embedding_dim :], state[key + 6], **CLOSE)


def dict_of(table):
    return {
        int(key): line
        for batch in table.export_batches()
        for key, line in zip(batch.keys, batch.lines.view(np.float32), strict=True)
    }
