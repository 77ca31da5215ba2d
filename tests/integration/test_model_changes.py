"""Incremental exports of Keras models that are trained on, by Python."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from integration.stored_tables import check_rows

import hotrow
from hotrow.errors import FailedPreconditionError
from hotrow.store import open_store
from hotrow.store.generations import Generations


@pytest.fixture
def trained():
    """A Keras model whose table forgets rows, and a function that trains it on some keys."""
    table = hotrow.TableConfig("t", 4, expiry=hotrow.Expiry(after_steps=3, sweep_steps=1))
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("key", table)])
    key = keras.Input((), dtype="int64", name="key")
    model = keras.Model({"key": key}, keras.layers.Dense(1)(layer({"key": key})["key"]))
    model.compile("adam", "mse")

    def fit(*keys):
        model.fit({"key": np.array(keys)}, np.ones(len(keys)), batch_size=99, verbose=0)

    return model, layer.tables["t"], fit


def test_a_keras_model_that_is_trained_on_brings_its_changes(trained, tmp_path):
    model, table, fit = trained
    url = f"file://{tmp_path}/store"
    fit(1, 2, 3)
    hotrow.export_model(model, tmp_path, "m", store=url)
    assert hotrow.export_changes(model, tmp_path, "m").outcome.cut is None
    # A row that a lookup made and no step has trained yet; it has the clock of the next step.
    table.lookup(np.array([7]), insert=True)
    fit(3, 4)
    fit(4, 5)
    cut = hotrow.export_changes(model, tmp_path, "m").outcome.cut
    assert (cut.step, cut.clocks, cut.rows, cut.removed) == (3, (3,), 4, 0)
    for _ in range(4):
        fit(6)
    cut = hotrow.export_changes(model, tmp_path, "m").outcome.cut
    assert (cut.rows, cut.removed) == (1, 6)
    assert table.statistics()["tombstones"] == 0, "the export has taken them"
    store = open_store(url)
    (generation,) = Generations(store.records).all("m")
    check_rows(store, generation, {"t": table})
    assert store.read(generation, 0, np.array([1, 2, 3, 4, 5, 6, 7]))[2].tolist() == [0] * 5 + [
        1,
        0,
    ]
    fit(1)  # it comes back
    hotrow.export_changes(model, tmp_path, "m")
    check_rows(store, generation, {"t": table})
    store.close()


def test_nobody_waits_for_a_binding_and_its_rows_stay_until_it_is_closed(trained, tmp_path):
    model, table, fit = trained
    fit(1, 2, 3)
    url = f"file://{tmp_path}/store"
    directory = hotrow.export_model(model, tmp_path, "m", store=url)
    with hotrow.bind(directory) as bound:
        for keys in ((2, 3, 4), (4, 5)):
            fit(*keys)
            outcome = hotrow.export_changes(model, tmp_path, "m", wait_seconds=600).outcome
            assert (outcome.waiting_for, len(outcome.held_by)) == ((), 1)
        score = bound.load().signatures["serving_default"]
        found = score(key=tf.range(8, dtype=tf.int64))["outputs"]
        expected = model.predict({"key": np.arange(8)}, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert hotrow.export_changes(model, tmp_path, "m").outcome.held_by == ()
    store = open_store(url)
    (generation,) = Generations(store.records).all("m")
    check_rows(store, generation, {"t": table})
    store.close()


def test_dense_weights_alone_are_a_change(trained, tmp_path):
    model, _, fit = trained
    fit(1, 2)
    hotrow.export_model(model, tmp_path, "m", store=f"file://{tmp_path}/store")
    kernel = model.layers[-1].kernel
    kernel.assign(kernel + 1)
    outcome = hotrow.export_changes(model, tmp_path, "m").outcome
    assert (outcome.committed, outcome.cut.rows) == (True, 0)
    assert not hotrow.export_changes(model, tmp_path, "m").outcome.committed
    kernel.assign(kernel + 1)
    assert hotrow.export_changes(model, tmp_path, "m").outcome.committed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda model, table: table.remove_rows(np.array([1])), "another run"),
        (lambda model, table: table.clear(), "another run"),
        (lambda model, table: setattr(table, "step", 9), "another run"),
        (lambda model, table: table.set_state(table.state()), "another run"),
        (lambda model, table: table.forget_tombstones(table.step), "has forgotten which keys"),
    ],
    ids=["rows removed", "cleared", "another clock", "restored", "tombstones forgotten"],
)
def test_what_the_clocks_do_not_show_needs_a_full_export(trained, tmp_path, change, said):
    model, table, fit = trained
    fit(1, 2)
    url = f"file://{tmp_path}/store"
    hotrow.export_model(model, tmp_path, "m", store=url)
    fit(2, 3)
    change(model, table)
    with pytest.raises(FailedPreconditionError, match=f"{said}.*(make a full export|export all)"):
        hotrow.export_changes(model, tmp_path, "m")
    hotrow.export_model(model, tmp_path, "m", store=url)
    fit(3)
    assert hotrow.export_changes(model, tmp_path, "m").manifest.version == 2


def test_a_model_of_another_shape_is_refused(trained, tmp_path):
    model, _, fit = trained
    fit(1, 2)
    url = f"file://{tmp_path}/store"
    hotrow.export_model(model, tmp_path, "m", store=url)
    inner = model.layers[1]
    key = keras.Input((), dtype="int64", name="key")
    wide = keras.Model({"key": key}, keras.layers.Dense(2)(inner({"key": key})["key"]))
    with pytest.raises(
        FailedPreconditionError, match=r"float32 \[4, 1\] there and .* \[4, 2\] now"
    ):
        hotrow.export_changes(wide, tmp_path, "m")
    other = hotrow.DistributedEmbedding([hotrow.FeatureConfig("key", hotrow.TableConfig("u", 4))])
    named = keras.Model({"key": key}, keras.layers.Dense(1)(other({"key": key})["key"]))
    with pytest.raises(FailedPreconditionError, match="other tables or features than"):
        hotrow.export_changes(named, tmp_path, "m")


def test_a_model_without_dense_weights_has_cuts_without(tmp_path):
    table = hotrow.TableConfig("t", 1)
    layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig("key", table)])
    key = keras.Input((), dtype="int64", name="key")
    model = keras.Model({"key": key}, layer({"key": key})["key"])
    model.compile("sgd", "mse")
    url = f"file://{tmp_path}/store"
    for keys in ([1, 2], [2, 3]):
        model.fit({"key": np.array(keys)}, np.ones(2), verbose=0)
        if keys == [1, 2]:
            hotrow.export_model(model, tmp_path, "m", store=url)
    cut = hotrow.export_changes(model, tmp_path, "m").outcome.cut
    assert (cut.rows, cut.dense_places) == (2, ())
