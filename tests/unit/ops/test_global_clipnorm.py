"""Clipping by the norm of the gradients of all rows of all tables of a layer."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.numpy_optimizers import NumpyTable
from unit.ops.pooled_tables import (
    KEYS,
    Batch,
    first_weights,
    gradients_of,
    layer_of,
    lines_of,
    step_of,
)
from unit.ops.small_layer import apply, layer, rows
from unit.ops.small_layer import gradients_of as small_gradients

import hotrow
from hotrow.errors import InvalidArgumentError

CLIP = 8.0


def clipped(gradients):
    """Returns the gradients of all tables, scaled as one vector, and whether they were."""
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    return {n: g * min(1.0, CLIP / norm) for n, g in gradients.items()}, norm > CLIP


def check(layer, models):
    for name, model in models.items():
        bound = 2e-6 * np.abs(model.weights).max()
        for key, (weights, _, _) in lines_of(layer.tables[name]).items():
            row = KEYS.tolist().index(key)
            np.testing.assert_allclose(weights, model.weights[row], rtol=0, atol=bound)


@pytest.mark.parametrize("update", ["step", "backward"])
@pytest.mark.parametrize(
    "optimizer", [hotrow.SGD(0.1), hotrow.Adam(0.01, clip_row_norm=1.0)], ids=["SGD", "Adam, row"]
)
def test_50_steps_equal_numpy(optimizer, update):
    layer = layer_of(update, global_clipnorm=CLIP, optimizer=optimizer)
    models = {name: NumpyTable(optimizer, rows) for name, rows in first_weights(layer).items()}
    step, random, times = step_of(layer), np.random.default_rng(3), 0
    for _ in range(50):
        batch = Batch(random, scale=random.uniform(0.1, 1.0))
        step(batch)
        both = {name: gradients_of(batch, name) for name in models}
        gradients, was_clipped = clipped({name: g for name, (g, _) in both.items()})
        times += was_clipped
        for name, model in models.items():
            model.apply(gradients[name], both[name][1])
    assert 10 < times < 40
    check(layer, models)


def test_accumulated_gradients_are_clipped_by_the_norm_of_their_mean():
    sgd = hotrow.SGD(0.1)
    layer = layer_of("step", global_clipnorm=CLIP, optimizer=sgd)
    models = {name: NumpyTable(sgd, rows) for name, rows in first_weights(layer).items()}
    step = step_of(layer, keras.optimizers.SGD(0.1, gradient_accumulation_steps=2))
    random, times = np.random.default_rng(4), 0
    for _ in range(10):
        batches = [Batch(random), Batch(random)]
        for batch in batches:
            step(batch)
        both = {name: [gradients_of(b, name) for b in batches] for name in models}
        gradients, was_clipped = clipped({n: (a[0] + b[0]) / 2 for n, (a, b) in both.items()})
        times += was_clipped
        for name, model in models.items():
            model.apply(gradients[name], both[name][0][1] | both[name][1][1])
    assert times > 2
    check(layer, models)


def test_keras_clips_dense_tables_by_the_same_norm():
    tables = [hotrow.TableConfig(n, 3, optimizer=hotrow.SGD(1.0), combiner=None) for n in "ab"]
    embedding = hotrow.DistributedEmbedding(
        [hotrow.FeatureConfig(t.name, t) for t in tables], global_clipnorm=0.5
    )
    keys = {t.name: KEYS for t in tables}
    dense = {n: tf.Variable(t.lookup(KEYS, insert=True)) for n, t in embedding.tables.items()}
    theirs = keras.optimizers.SGD(1.0, global_clipnorm=0.5)
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(r**2) for r in embedding(keys, training=True).values()])
    apply(keras.optimizers.SGD(), *_with(tape, loss, embedding.trainable_variables))
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(v**2) for v in dense.values()])
    apply(theirs, *_with(tape, loss, list(dense.values())))
    for name, table in embedding.tables.items():
        np.testing.assert_allclose(table.lookup(KEYS), dense[name].numpy(), atol=1e-6)


def _with(tape, loss, variables):
    return variables, tape.gradient(loss, variables)


def test_keys_that_are_not_admitted_do_not_count_in_the_norm():
    admission = {"admission": hotrow.Admission(2)}
    embedding = layer(table=admission, global_clipnorm=1.0)
    apply(keras.optimizers.SGD(), *small_gradients(embedding))  # key 1, twice in the batch
    start = layer().tables["t"].lookup(np.array([1]), insert=True)
    np.testing.assert_allclose(rows(embedding, [1]), start - 0.5, atol=1e-6)
    assert embedding.tables["t"].size == 1


@pytest.mark.parametrize("bad", [0, -1.0, float("nan"), float("inf")])
def test_a_bound_that_is_not_positive_is_refused(bad):
    with pytest.raises(InvalidArgumentError, match=r"global_clipnorm is .*; must be positive"):
        layer(global_clipnorm=bad)
