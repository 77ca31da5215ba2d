"""Gradients that are not finite, through the Keras layer: rows stay, and are counted."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.small_layer import layer

import hotrow

OPTIMIZERS = {
    "SGD": hotrow.SGD(0.1),
    "momentum": hotrow.Momentum(0.1),
    "Adagrad": hotrow.Adagrad(0.1),
    "row-wise Adagrad": hotrow.RowwiseAdagrad(0.1),
    "Adam": hotrow.Adam(0.1),
    "FTRL": hotrow.Ftrl(0.1),
}


def lines_of(embedding):
    return {
        key: line.tobytes()
        for batch in embedding.tables["t"].export_batches()
        for key, line in zip(batch.keys.tolist(), batch.lines, strict=True)
    }


@pytest.mark.parametrize("update", ["step", "backward"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_row_whose_gradient_is_not_finite_stays_as_it_was(name, value, update):
    embedding = layer(update, optimizer=OPTIMIZERS[name])
    optimizer = keras.optimizers.SGD(0.1)
    keys = np.arange(8, dtype=np.int64)

    def step(factors):
        with tf.GradientTape() as tape:
            rows = embedding({"f": keys}, training=True)["f"]
            loss = tf.reduce_sum(rows * factors[:, None])
        variables = embedding.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)

    factors = np.linspace(0.5, 1.5, 8, dtype=np.float32)
    step(factors)
    before = lines_of(embedding)
    factors[[2, 5]] = value
    step(factors)
    after = lines_of(embedding)
    assert before.keys() == after.keys()
    assert {key for key in after if after[key] == before[key]} == {2, 5}
    statistics = embedding.tables["t"].statistics()
    assert (statistics["updates"], statistics["nonfinite_updates"]) == (16, 2)
