"""Early stopping that restores rows and dense weights of one epoch."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from unit.ops.small_layer import KEYS, Model, layer

import hotrow


class Losses(keras.callbacks.Callback):
    """Gives epochs the values of a metric, and notes the state of the model after each."""

    def __init__(self, values):
        super().__init__()
        self.values, self.states = values, []

    def on_epoch_end(self, epoch, logs=None):
        logs["score"] = self.values[epoch]
        self.states.append(state(self.model))


def state(model):
    return model.embedding.tables["t"].digest(), model.dense.kernel.numpy().tolist()


def fit(callback, values):
    model, losses = Model(layer(optimizer=hotrow.Adagrad(0.3))), Losses(values)
    model.compile("adam", "mse")
    model.fit(
        KEYS, np.ones(4), epochs=len(values), verbose=0, callbacks=[losses, callback], shuffle=False
    )
    return model, losses.states


@pytest.mark.parametrize(
    ("values", "best", "epochs"),
    [
        pytest.param([3.0, 1.0, 2.0, 2.0, 0.0], 1, 4, id="stopped"),
        pytest.param([3.0, 2.0, 2.5], 1, 3, id="to the end"),
        pytest.param([1.0, 2.0, 2.0], 0, 3, id="the first"),
    ],
)
def test_rows_and_weights_of_the_best_epoch_come_back(tmp_path, values, best, epochs):
    callback = hotrow.EarlyStopping(monitor="score", mode="min", patience=2, directory=tmp_path)
    model, states = fit(callback, values)
    assert len(states) == epochs
    assert states[best] != states[-1]
    assert state(model) == states[best]
    assert not list(tmp_path.iterdir())


def test_without_restoring_the_last_epoch_stays(tmp_path):
    callback = hotrow.EarlyStopping(
        monitor="score", mode="min", restore_best_weights=False, directory=tmp_path
    )
    model, states = fit(callback, [1.0, 2.0])
    assert state(model) == states[-1]


def test_the_callback_of_keras_warns_once():
    callback = keras.callbacks.EarlyStopping(
        monitor="score", mode="min", patience=3, restore_best_weights=True
    )
    with pytest.warns(UserWarning, match="use hotrow.EarlyStopping") as caught:
        fit(callback, [3.0, 2.0, 1.0])
    assert len(caught) == 1
