"""`training=False` inside of a step that trains: rows are neither inserted nor updated."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.small_layer import KEYS, Model, layer

import hotrow


def state(embedding):
    table = embedding.tables["t"]
    return table.digest(), table.size, table.step


class OnTop(keras.Model):
    """Keras' idiom for transfer learning: a base in evaluation mode under a head that trains."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.head = keras.layers.Dense(1)

    def call(self, keys):
        return self.head(self.base(keys, training=False))


@pytest.mark.parametrize("update", ["step", "backward"])
@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "not frozen"])
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_a_base_in_evaluation_mode_neither_inserts_nor_learns(update, frozen):
    base = Model(layer(update))
    base.compile("sgd", "mse")
    base.fit(KEYS, np.ones(4), verbose=0)
    before = state(base.embedding)
    base.trainable = not frozen
    model = OnTop(base)
    model.compile("sgd", "mse")
    kernel = base.dense.kernel.numpy()
    model.fit(np.array([1, 2, 77, 78]), np.ones(4), epochs=2, verbose=0)
    assert state(base.embedding) == before
    assert (base.dense.kernel.numpy() == kernel).all() == frozen


@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
def test_a_tape_over_an_evaluation_has_no_gradient_of_the_anchor(in_function):
    embedding = layer()
    before = state(embedding)

    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embedding({"f": KEYS}, training=False)["f"])
        return tape.gradient(loss, embedding.trainable_variables)

    assert (tf.function(gradients) if in_function else gradients)() == [None]
    assert state(embedding) == before


def test_keras_warns_of_a_layer_in_evaluation_mode_in_a_step():
    base = Model(layer())
    model = OnTop(base)
    model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="anchor"):
        model.fit(KEYS, np.ones(4), verbose=0)


def test_a_layer_used_both_ways_in_a_step_learns_from_the_training_use_alone():
    embedding = layer()
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"])
        loss += 10.0 * tf.reduce_sum(embedding({"f": np.array([1, 99])}, training=False)["f"])
    variables = embedding.trainable_variables
    keras.optimizers.SGD().apply(tape.gradient(loss, variables), variables)
    assert embedding.tables["t"].size == 3
    moved = start - embedding.tables["t"].lookup(np.array([1, 2, 3]))
    np.testing.assert_allclose(moved, np.array([[2], [1], [1]]) * np.ones(4), atol=1e-6)


def test_an_input_s_gradient_through_an_evaluation_inserts_nothing():
    embedding = layer(optimizer=hotrow.SGD(1.0))
    scale = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        loss = scale * tf.reduce_sum(embedding({"f": KEYS}, training=False)["f"])
    assert tape.gradient(loss, scale) is not None
    assert embedding.tables["t"].size == 0


@pytest.mark.parametrize("update", ["step", "backward"])
@pytest.mark.parametrize(("training", "trainable"), [(False, True), (True, False)])
def test_watched_weights_of_keys_do_not_make_a_lookup_learn(update, training, trainable):
    embedding = layer(update, trainable=trainable)
    scale = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        rows = embedding({"f": KEYS}, weights={"f": tf.ones([4]) * scale}, training=training)
        loss = tf.reduce_sum(rows["f"])
    assert tape.gradient(loss, scale) is None
    assert (embedding.tables["t"].size, embedding.tables["t"].step) == (0, 0)


class WithoutTraining(keras.Model):
    """A model whose `call` does not take `training`, so that Keras passes none to its layers."""

    def __init__(self):
        super().__init__()
        self.embedding = layer()
        self.dense = keras.layers.Dense(1)

    def call(self, keys):
        return self.dense(self.embedding({"f": keys})["f"])


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_model_that_does_not_pass_training_on_does_not_train(eagerly):
    model = WithoutTraining()
    model.compile("sgd", "mse", run_eagerly=eagerly)
    with pytest.raises(LookupError, match="an argument `training` and pass it on"):
        model.fit(KEYS, np.ones(4), verbose=0)
    model.evaluate(KEYS, np.ones(4), verbose=0)
    assert model.embedding.tables["t"].size == 0
