"""The optimizer of a step and the callback that reads weights, as the frames of Keras show them.

These tests fail when Keras calls variables in another way: see `ops/keras_callers.py`.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.small_layer import KEYS, Model, layer

from hotrow.errors import UnimplementedError
from hotrow.ops.anchor import AnchorVariable
from hotrow.ops.keras_callers import calling


class Recorder(keras.Variable):
    """A variable as the anchor is one; it records who asks for its kind and who assigns to it."""

    def __init__(self):
        self.asking, self.assigning, self.reading = [], [], []
        super().__init__(np.zeros(2), dtype="float32")

    @property
    def overwrite_with_gradient(self):
        self.asking.append(calling(keras.optimizers.Optimizer))
        return True

    @overwrite_with_gradient.setter
    def overwrite_with_gradient(self, value):
        pass

    def numpy(self):
        self.reading.append(calling(keras.callbacks.EarlyStopping))
        return super().numpy()

    def _direct_assign(self, value):
        self.assigning.append(calling(keras.optimizers.Optimizer))
        super()._direct_assign(value)


class Weighted(keras.Model):
    def __init__(self):
        super().__init__()
        self.weight = Recorder()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x * tf.reduce_sum(self.weight))


OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(),
    "Adam": lambda: keras.optimizers.Adam(),
    "accumulation": lambda: keras.optimizers.SGD(gradient_accumulation_steps=2),
    "EMA": lambda: keras.optimizers.Adam(use_ema=True),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
@pytest.mark.parametrize("way", ["eager", "function", "fit"])
def test_a_keras_optimizer_is_found_when_it_asks_and_when_it_assigns(make, way):
    model, optimizer = Weighted(), make()
    x = np.ones((4, 1), np.float32)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)

    model(x)
    weight = model.weight
    optimizer.build(model.trainable_variables)
    assert all(asking is optimizer for asking in weight.asking)
    if way == "fit":
        model.compile(optimizer, "mse")
        weight.asking.clear()
        model.train_on_batch(x, np.ones((4, 1)))
    else:
        (tf.function(step) if way == "function" else step)()
    assert weight.asking
    assert all(asking is optimizer for asking in weight.asking)
    assert weight.assigning
    assert all(assigning is optimizer for assigning in weight.assigning)


@pytest.mark.parametrize("way", ["eager", "function"])
def test_an_optimizer_that_scales_the_loss_is_found_when_it_asks(way):
    weight = Recorder()
    inner = keras.optimizers.SGD()
    optimizer = keras.optimizers.LossScaleOptimizer(inner)

    def step():
        optimizer.apply([tf.ones(2)], [weight])

    (tf.function(step) if way == "function" else step)()
    assert optimizer in weight.asking
    assert set(weight.asking) <= {inner, optimizer}


def test_set_weights_in_a_callback_is_no_optimizer():
    class SetsWeights(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.set_weights(self.model.get_weights())

    model = Weighted()
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0, callbacks=[SetsWeights()])
    *traced, set_weights = model.weight.assigning
    assert traced
    assert all(assigning is model.optimizer for assigning in traced)
    assert set_weights is None


def test_early_stopping_is_found_when_it_reads():
    model = Weighted()
    model.compile("sgd", "mse")
    callback = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0, callbacks=[callback])
    assert callback in model.weight.reading
    model.get_weights()
    assert model.weight.reading[-1] is None


def test_a_keras_that_hides_its_optimizer_does_not_train(monkeypatch):
    """As if a later Keras asked from a module-level function."""
    monkeypatch.setattr("hotrow.ops.anchor.calling", lambda kind: None)
    model = Model(layer())
    model.compile("sgd", "mse")
    with pytest.raises(UnimplementedError, match="does not show which optimizer trains the layer"):
        model.train_on_batch(KEYS, np.ones(4))
    assert model.embedding.tables["t"].step == 0


def test_a_program_of_its_own_may_ask():
    anchor = layer().anchor
    assert isinstance(anchor, AnchorVariable)
    assert anchor.overwrite_with_gradient
