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
    with pytest.raises(ValueError, match="with optimizer 'Adagrad'; the layer needs 't' with opti"):
        other.load_weights(tmp_path / "w.weights.h5")
    half = Model(layer(optimizer=hotrow.Adagrad(0.3), table={"dtype": "bfloat16"}))
    half(KEYS)
    with pytest.raises(ValueError, match=r"with layout .*'line_bytes': 32.*needs 't' .*: 24"):
        half.load_weights(tmp_path / "w.weights.h5")
    assert half.embedding.tables["t"].size == 0


def test_clocks_counts_occurrences_and_tombstones_are_kept(tmp_path):
    options = {"admission": hotrow.Admission(3), "expiry": hotrow.Expiry(2, sweep_steps=1)}
    model, other = (Model(layer(optimizer=hotrow.Adam(), table=options)) for _ in range(2))
    for one in (model, other):
        one.compile("sgd", "mse")
        one(KEYS)
    for keys in ([7, 7, 7, 5], [5, 6], [6], [6], [6], [6]):
        model.train_on_batch(np.array(keys), np.ones(len(keys)))
    table, loaded = model.embedding.tables["t"], other.embedding.tables["t"]
    assert table.tombstones()[0].tolist() == [7]
    model.save_weights(tmp_path / "w.weights.h5")
    other.load_weights(tmp_path / "w.weights.h5")
    assert loaded.digest() == table.digest()
    assert loaded.state() == table.state()
    assert loaded.tombstones()[0].tolist() == [7]
    for one in (model, other):  # the third occurrence of 5
        one.train_on_batch(np.array([5, 8]), np.ones(2))
    assert {5, 6} == {int(key) for batch in loaded.export_batches() for key in batch.keys}
    assert loaded.digest() == table.digest()
    assert loaded.state() == table.state()


def test_weights_load_into_another_number_of_shards(tmp_path):
    model, other = trained(), Model(layer(optimizer=hotrow.Adagrad(0.3), table={"shards": 3}))
    model.save_weights(tmp_path / "w.weights.h5")
    other(KEYS)
    other.load_weights(tmp_path / "w.weights.h5")
    assert other.embedding.tables["t"].digest() == model.embedding.tables["t"].digest()
    assert other.embedding.tables["t"].step == 2


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
