"""Keras saving keeps the tables or refuses by name; it never loses them in silence."""

from __future__ import annotations

import gc
import json
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.small_layer import KEYS, Model, layer

import hotrow
from hotrow.errors import DataLossError, UnimplementedError
from hotrow.ops import weights_file


def trained():
    model = Model(layer(optimizer=hotrow.Adagrad(0.3)))
    model.compile("adam", "mse")
    model.fit(KEYS, np.ones(4), epochs=2, verbose=0)
    return model


def functional():
    """Returns a model that Keras can rebuild from its configuration, and its layer."""
    embedding = layer(optimizer=hotrow.Adagrad(0.3))
    inputs = {"f": keras.Input((), dtype="int64", name="f")}
    model = keras.Model(inputs, keras.layers.Dense(1)(embedding(inputs)["f"]))
    model.compile("adam", "mse")
    return model, embedding


def test_save_weights_and_load_weights_keep_the_tables(tmp_path):
    model, other = trained(), Model(layer(optimizer=hotrow.Adagrad(0.3)))
    model.save_weights(tmp_path / "w.weights.h5")
    other(KEYS)
    other.embedding({"f": np.array([50])}, training=True)  # a row that must go
    other.load_weights(tmp_path / "w.weights.h5")
    assert other.embedding.tables["t"].digest() == model.embedding.tables["t"].digest()
    assert other.embedding.tables["t"].step == 2


def test_model_checkpoint_and_save_keep_the_tables(tmp_path):
    model, embedding = functional()
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


@pytest.mark.parametrize(
    ("name", "options"),
    [("w.weights.h5", {}), ("w.weights.json", {"max_shard_size": 1e-5}), ("m.keras", {})],
    ids=["a file", "files of 10 kB", "an archive"],
)
def test_weights_are_written_and_read_in_pieces(tmp_path, monkeypatch, name, options):
    monkeypatch.setattr(weights_file, "PIECE_BYTES", 1000)
    (model, embedding), (other, loaded) = functional(), functional()
    keys = np.arange(2000)
    model.fit({"f": keys}, np.ones(2000), epochs=1, verbose=0)
    other.fit({"f": np.array([-1])}, np.ones(1), verbose=0)  # a row that must go
    save = model.save if name.endswith(".keras") else model.save_weights
    save(tmp_path / name, **options)
    assert len(list(tmp_path.iterdir())) > 2 * len(options)
    other.load_weights(tmp_path / name)
    assert loaded.tables["t"].digest() == embedding.tables["t"].digest()
    assert loaded.tables["t"].state() == embedding.tables["t"].state()


@pytest.mark.filterwarnings("ignore:Skipping nested container")  # what Keras adds
def test_an_archive_without_its_rows_is_refused(tmp_path):
    model, _ = functional()
    model.fit({"f": KEYS}, np.ones(4), verbose=0)
    model.save(tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras") as whole:
        (rows,) = (name for name in whole.namelist() if "/rows-" in name)
        with zipfile.ZipFile(tmp_path / "part.keras", "w") as part:
            for name in whole.namelist():
                part.writestr("assets/other" if name == rows else name, whole.read(name))
    with pytest.raises(ValueError, match=r"the rows are missing: no file rows-.* among the assets"):
        keras.models.load_model(tmp_path / "part.keras")
    with pytest.raises(ValueError, match=r"the rows are missing: no file rows-.* among the assets"):
        model.load_weights(tmp_path / "part.keras")


def test_weights_of_earlier_versions_are_read(tmp_path):
    model, embedding = functional()
    model.fit({"f": KEYS}, np.ones(4), epochs=2, verbose=0)
    store = {}
    embedding.save_own_variables(store)
    old = {name.replace("table0_0_", "table0_"): array for name, array in store.items()}
    facts = json.loads(old["table0_facts"].tobytes())
    assert facts.pop("pieces") == 1
    old["table0_facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    _, other = functional()
    other.load_own_variables(old)
    assert other.tables["t"].digest() == embedding.tables["t"].digest()
    del old["table0_clocks"]
    with pytest.raises(DataLossError, match="table 't' of the weights file: 'table0_clocks'"):
        other.load_own_variables(old)
    assert other.tables["t"].size == 0


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
        one.embedding.tables["t"].keep_tombstones()
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
