"""Keras saving keeps the tables or refuses by name; it never loses them in silence."""

from __future__ import annotations

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.small_layer import KEYS, Model, layer

import hotrow
from hotrow.errors import UnimplementedError


def trained():
    model = Model(layer(optimizer=hotrow.Adagrad(0.3)))
    model.compile("adam", "mse")
    model.fit(KEYS, np.ones(4), epochs=2, verbose=0)
    return model


def test_save_weights_and_load_weights_keep_the_tables(tmp_path):
    model, other = trained(), Model(layer(optimizer=hotrow.Adagrad(0.3)))
    model.save_weights(tmp_path / "w.weights.h5")
    other(KEYS)
    other.embedding({"f": np.array([50])}, training=True)  # a row that must go
    other.load_weights(tmp_path / "w.weights.h5")
    assert other.embedding.tables["t"].digest() == model.embedding.tables["t"].digest()
    assert other.embedding.tables["t"].step == 2


def test_model_checkpoint_and_save_keep_the_tables(tmp_path):
    embedding = layer(optimizer=hotrow.Adagrad(0.3))
    inputs = {"f": keras.Input((), dtype="int64", name="f")}
    model = keras.Model(inputs, keras.layers.Dense(1)(embedding(inputs)["f"]))
    model.compile("adam", "mse")
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="loss")
    model.fit({"f": KEYS}, np.ones(4), epochs=1, verbose=0, callbacks=[checkpoint])
    loaded = keras.models.load_model(tmp_path / "best.keras")
    (restored,) = (x for x in loaded.layers if isinstance(x, hotrow.DistributedEmbedding))
    assert restored.tables["t"].digest() == embedding.tables["t"].digest()
    np.testing.assert_array_equal(
        loaded.predict({"f": KEYS}, verbose=0), model.predict({"f": KEYS}, verbose=0)
    )
    loaded.fit({"f": KEYS}, np.ones(4), epochs=1, verbose=0)
    assert restored.tables["t"].step == 2


def test_tensorflow_checkpoints_are_refused_by_name(tmp_path):
    model = trained()
    with pytest.raises(UnimplementedError, match=r"tf\.train\.Checkpoint does not keep"):
        tf.train.Checkpoint(model).write(str(tmp_path / "checkpoint"))
    assert not list(tmp_path.iterdir())


def test_weights_of_another_table_are_refused_by_name(tmp_path):
    trained().save_weights(tmp_path / "w.weights.h5")
    other = Model(layer(optimizer=hotrow.SGD(0.3)))  # lines without state
    other(KEYS)
    # Keras wraps it.
    with pytest.raises(ValueError, match="lines of 8 floats; the layer needs 't' of dim 4 with 4"):
        other.load_weights(tmp_path / "w.weights.h5")


def test_a_table_goes_with_its_layer_and_its_functions_say_so():
    embedding = layer()
    look = tf.function(lambda k: embedding({"f": k})["f"]).get_concrete_function(
        tf.TensorSpec([None], tf.int64)
    )
    look(tf.constant([1], tf.int64))
    handle = embedding.tables["t"].handle
    embedding._tables.clear()
    gc.collect()
    with pytest.raises(tf.errors.NotFoundError, match=handle):
        look(tf.constant([1], tf.int64))
