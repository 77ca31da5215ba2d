"""Gradient accumulation: which assignments to the anchor are micro-steps, and what the mean is."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.small_layer import KEYS, Model, apply, gradients_of, layer, rows

MOVE = np.array([[2], [1], [1]])
"""How far a step of SGD(1) moves the rows of KEYS, for a gradient of 1."""


def start():
    return layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)


def same_weights(embedding):
    embedding.set_weights(embedding.get_weights())


def averaged_weights(embedding):
    """As an average over epochs does: not exactly the value that was read."""
    (value,) = embedding.get_weights()
    embedding.set_weights([0.9 * value + 0.1 * value + 1e-8 * value])


def zeros(embedding):
    embedding.set_weights([np.zeros(256, np.float32)])


def in_function(embedding):
    (value,) = embedding.get_weights()

    @tf.function
    def assign(value):
        embedding.anchor.assign(value)

    assign(0.75 * tf.constant(value) + 0.25 * tf.constant(value))


WRITES = [same_weights, averaged_weights, zeros, in_function]


@pytest.mark.parametrize("write", WRITES)
def test_weights_that_are_set_between_steps_change_no_step(write):
    embedding, optimizer = layer(), keras.optimizers.SGD(0.1)
    for _ in range(3):
        apply(optimizer, *gradients_of(embedding))
        write(embedding)
    assert embedding.tables["t"].step == 3
    np.testing.assert_allclose(rows(embedding), start() - 3 * MOVE, atol=1e-5)


@pytest.mark.parametrize("write", WRITES)
def test_weights_that_are_set_between_micro_steps_change_no_mean(write):
    embedding = layer()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    for _ in range(6):
        apply(optimizer, *gradients_of(embedding))
        write(embedding)
    assert embedding.tables["t"].step == 2
    np.testing.assert_allclose(rows(embedding), start() - 2 * MOVE, atol=1e-5)


def test_weights_that_are_set_on_a_model_in_fit_change_no_step():
    class SetsWeights(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.model.set_weights(self.model.get_weights())

    moved = []
    for callbacks in ([], [SetsWeights()]):
        model = Model(layer())
        model.compile(keras.optimizers.SGD(0.0), "mse")
        model.fit(KEYS, np.ones(4), epochs=3, verbose=0, callbacks=callbacks)
        moved.append(rows(model.embedding))
    np.testing.assert_array_equal(moved[1], moved[0])


def test_a_new_optimizer_takes_the_mean_of_its_own_micro_steps_only():
    embedding = layer()
    old = keras.optimizers.SGD(0.1, gradient_accumulation_steps=4)
    for _ in range(2):
        apply(old, *gradients_of(embedding, weight=100.0))
    new = keras.optimizers.SGD(0.1, gradient_accumulation_steps=4)
    for _ in range(4):
        apply(new, *gradients_of(embedding))
    assert embedding.tables["t"].step == 1
    np.testing.assert_allclose(rows(embedding), start() - MOVE, atol=1e-5)


def test_a_model_that_is_compiled_again_takes_the_mean_of_its_own_micro_steps_only():
    model = Model(layer())
    fresh = Model(layer())
    model.compile(keras.optimizers.SGD(0.0, gradient_accumulation_steps=4), "mse")
    for _ in range(2):
        model.train_on_batch(KEYS, 100 * np.ones(4))
    for either in (model, fresh):
        either.compile(keras.optimizers.SGD(0.0, gradient_accumulation_steps=2), "mse")
        for _ in range(4):
            either.train_on_batch(KEYS, np.ones(4))
    np.testing.assert_allclose(rows(model.embedding), rows(fresh.embedding), atol=1e-6)


def test_two_optimizers_accumulate_each_for_itself():
    embedding = layer()
    two = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    three = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    for _ in range(6):
        apply(two, *gradients_of(embedding))
        apply(three, *gradients_of(embedding, weight=10.0))
    assert embedding.tables["t"].step == 5
    np.testing.assert_allclose(rows(embedding), start() - (3 + 2 * 10) * MOVE, atol=1e-4)


def test_a_micro_step_without_a_gradient_of_the_layer_counts_as_one():
    embedding, dense = layer(), keras.Variable(1.0)
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    optimizer.build([*embedding.trainable_variables, dense])
    apply(optimizer, [dense], [tf.constant(1.0)])
    variables, gradients = gradients_of(embedding)
    apply(optimizer, [*variables, dense], [*gradients, tf.constant(1.0)])
    np.testing.assert_allclose(rows(embedding), start() - 0.5 * MOVE, atol=1e-6)
