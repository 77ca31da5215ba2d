"""Where every row is in every batch, tables and Keras' optimizers on dense variables agree."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.pooled_tables import lines_of

import hotrow

KEYS = np.arange(-5, 6, dtype=np.int64)
DIM, STEPS = 4, 40
k = keras.optimizers
DECAY = k.schedules.ExponentialDecay(0.1, 10, 0.5)

PAIRS = {
    "SGD": (hotrow.SGD(0.1), k.SGD(0.1)),
    "SGD with a schedule": (hotrow.SGD(DECAY), k.SGD(DECAY)),
    "SGD with weight decay": (hotrow.SGD(0.1, weight_decay=0.1), k.SGD(0.1, weight_decay=0.1)),
    "momentum": (hotrow.Momentum(0.05), k.SGD(0.05, momentum=0.9)),
    "Nesterov": (
        hotrow.Momentum(0.05, 0.8, nesterov=True),
        k.SGD(0.05, momentum=0.8, nesterov=True),
    ),
    "Adagrad": (hotrow.Adagrad(0.1, 0.1), k.Adagrad(0.1, 0.1)),
    "Adam by rows": (hotrow.Adam(0.01), k.Adam(0.01)),
    "Adam by the table": (hotrow.Adam(0.01, bias_correction="global"), k.Adam(0.01)),
    "AdamW": (hotrow.Adam(0.01, weight_decay=0.2), k.AdamW(0.01, weight_decay=0.2)),
    "FTRL": (hotrow.Ftrl(0.1, 0.1), k.Ftrl(0.1, initial_accumulator_value=0.1)),
    "FTRL with penalties": (
        hotrow.Ftrl(0.1, 0.2, 0.05, 0.1, 0.2, 0.3),
        k.Ftrl(
            0.1,
            initial_accumulator_value=0.2,
            l1_regularization_strength=0.05,
            l2_regularization_strength=0.1,
            l2_shrinkage_regularization_strength=0.2,
            beta=0.3,
        ),
    ),
}


@pytest.mark.parametrize("update", ["step", "backward"])
@pytest.mark.parametrize("name", PAIRS)
def test_a_table_trains_like_a_dense_variable(name, update):
    ours, theirs = PAIRS[name]
    theirs = type(theirs).from_config(theirs.get_config())  # each case has its own
    table = hotrow.TableConfig("t", DIM, optimizer=ours, combiner=None)
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", table)], update=update)
    dense = tf.Variable(layer.tables["t"].lookup(KEYS, insert=True))
    start = dense.numpy()
    targets = tf.constant(np.random.default_rng(5).normal(size=(len(KEYS), DIM)), tf.float32)
    anchor = keras.optimizers.SGD()
    anchor.build(layer.trainable_variables)
    theirs.build([dense])

    @tf.function
    def step():
        with tf.GradientTape(persistent=True) as tape:
            rows = layer({"f": tf.constant(KEYS)}, training=True)["f"]
            loss = tf.reduce_sum((rows - targets) ** 2)
            dense_loss = tf.reduce_sum((dense - targets) ** 2)
        anchor.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        theirs.apply([tape.gradient(dense_loss, dense)], [dense])

    for _ in range(STEPS):
        step()
    lines = lines_of(layer.tables["t"])
    rows = np.array([lines[key][0] for key in KEYS.tolist()])
    moved = np.abs(dense.numpy() - start).max()
    assert moved > 0.05
    np.testing.assert_allclose(rows, dense.numpy(), rtol=0, atol=4e-6)


def test_rows_that_are_not_in_the_batch_stay_as_they_are_to_the_bit():
    """Adam is lazy: neither weights nor m, v, t, nor decay of an absent row change."""
    optimizer = hotrow.Adam(0.01, weight_decay=0.2, l2=0.1)
    table = hotrow.TableConfig("t", DIM, optimizer=optimizer, combiner=None)
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", table)])
    ones = np.ones((2, DIM), np.float32)
    layer.tables["t"].update(np.array([1, 2]), ones)
    kept = lines_of(layer.tables["t"])[1]
    for _ in range(3):
        layer.tables["t"].update(np.array([2, 3]), ones)
    for before, after in zip(kept, lines_of(layer.tables["t"])[1], strict=True):
        np.testing.assert_array_equal(after, before)


def test_adam_by_rows_gives_a_late_row_steps_of_full_size_and_by_the_table_not():
    firsts = {}
    for correction in ("row", "global"):
        optimizer = hotrow.Adam(0.01, bias_correction=correction)
        table = hotrow.TableConfig("t", DIM, optimizer=optimizer)
        (table,) = hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", table)]).tables.values()
        one = np.ones((1, DIM), np.float32)
        for _ in range(50):
            table.update(np.array([1]), one)
        start = table.lookup(np.array([2]), insert=True)
        table.update(np.array([2]), one)
        firsts[correction] = float((start - table.lookup(np.array([2])))[0, 0])
    np.testing.assert_allclose(firsts["row"], 0.01, rtol=1e-4)
    # m = 0.1 g, v = 0.001 g^2, corrected by t = 51.
    by_hand = 0.01 * 0.1 / (1 - 0.9**51) / np.sqrt(0.001 / (1 - 0.999**51))
    np.testing.assert_allclose(firsts["global"], by_hand, rtol=1e-4)
