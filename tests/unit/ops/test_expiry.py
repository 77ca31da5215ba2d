"""Rows that are given up, by age and by rarity, and the tombstones that remember them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.pooled_tables import lines_of
from unit.ops.small_layer import Model, apply, layer
from unit.ops.test_admission import trainer

import hotrow


class ExactTable:
    """Clocks and counts of keys, and what expires, in plain Python."""

    def __init__(self, expiry):
        self.expiry = expiry
        self.step = self.expired = 0
        self.rows, self.tombstones = {}, {}  # key: (clock, count); key: step

    def train(self, keys):
        self.step += 1
        for key, times in Counter(keys.tolist()).items():
            _, count = self.rows.get(key, (0, 0))
            self.rows[key] = (self.step, count + times)
            self.tombstones.pop(key, None)
        for key, row in list(self.rows.items()):
            if self.due(*row):
                del self.rows[key]
                self.tombstones[key] = self.step
                self.expired += 1

    def due(self, clock, count):
        age = self.step - clock
        e = self.expiry
        old = e.after_steps is not None and age > e.after_steps
        return old or (
            e.rare_count is not None and count < e.rare_count and age > e.rare_after_steps
        )


def random_keys(random):
    return np.minimum(random.zipf(1.4, random.integers(0, 8)), 60).astype(np.int64)


@pytest.mark.parametrize("update", ["step", "backward"])
@pytest.mark.parametrize(
    "expiry",
    [
        pytest.param({"after_steps": 4}, id="by age"),
        pytest.param({"rare_count": 3, "rare_after_steps": 2}, id="by rarity"),
        pytest.param({"after_steps": 9, "rare_count": 3, "rare_after_steps": 2}, id="by both"),
    ],
)
def test_rows_expire_as_in_plain_python(expiry, update):
    options = hotrow.Expiry(**expiry, sweep_steps=1)
    embedding = layer(update, hotrow.SGD(0.5), table={"expiry": options})
    table, step, exact = embedding.tables["t"], trainer(embedding), ExactTable(options)
    table.keep_tombstones()
    random, returned = np.random.default_rng(1), 0
    for _ in range(120):
        keys = random_keys(random)
        returned += len(set(keys.tolist()) & exact.tombstones.keys())
        exact.train(keys)
        step(keys)
        assert set(lines_of(table)) == set(exact.rows)
        headers = {
            key: (clock, count)
            for batch in table.export_batches()
            for key, clock, count in zip(
                batch.keys.tolist(), batch.clocks.tolist(), batch.counts.tolist(), strict=True
            )
        }
        assert headers == exact.rows
        tombstones = dict(zip(*(array.tolist() for array in table.tombstones()), strict=True))
        assert tombstones == exact.tombstones
        statistics = table.statistics()
        assert statistics["expired"] == exact.expired
        assert statistics["tombstones"] == len(tombstones)
        assert statistics["rows"] == table.size == len(exact.rows)
    assert exact.expired > 50
    assert returned > 10


def test_a_sweep_takes_as_many_steps_as_it_says():
    options = hotrow.Expiry(after_steps=3, sweep_steps=7)
    embedding = layer(table={"expiry": options})
    step = trainer(embedding)
    keys = np.arange(5000)
    step(keys)
    sizes = []
    for _ in range(3 + 7):
        step(np.array([-1]))
        sizes.append(embedding.tables["t"].size)
    assert sizes[:3] == [5001] * 3  # none is too old yet
    assert all(a > b for a, b in pairwise(sizes[2:]))
    assert sizes[-1] == 1


def test_a_key_that_returns_starts_anew_and_loses_its_tombstone():
    options = {"expiry": hotrow.Expiry(after_steps=1, sweep_steps=1)}
    embedding = layer(table=options)
    table, step = embedding.tables["t"], trainer(embedding)
    table.keep_tombstones()
    step(np.array([7]))
    moved = table.lookup(np.array([7]))
    step(np.array([8]))
    step(np.array([8]))
    assert table.tombstones()[0].tolist() == [7]
    np.testing.assert_array_equal(table.lookup(np.array([7])), np.zeros((1, 4)))
    read = step(np.array([7]))
    first = layer().tables["t"].lookup(np.array([7]), insert=True)
    np.testing.assert_array_equal(read, first)
    np.testing.assert_array_equal(table.lookup(np.array([7])), moved)
    assert table.tombstones()[0].tolist() == []
    assert table.statistics()["expired"] == 1


def test_an_expired_key_must_be_admitted_again():
    options = {
        "expiry": hotrow.Expiry(after_steps=1, sweep_steps=1),
        "admission": hotrow.Admission(2),
    }
    embedding = layer(table=options)
    table, step = embedding.tables["t"], trainer(embedding)
    table.keep_tombstones()
    for keys in ([7, 7], [8], [8]):
        step(np.array(keys))
    assert set(lines_of(table)) == {8}
    step(np.array([7, 8]))
    assert set(lines_of(table)) == {8}
    assert table.tombstones()[0].tolist() == [7]  # an occurrence alone brings no row back
    step(np.array([7, 8]))
    assert set(lines_of(table)) == {7, 8}
    assert table.tombstones()[0].tolist() == []


def test_tombstones_are_forgotten_up_to_a_step():
    embedding = layer(table={"expiry": hotrow.Expiry(after_steps=1, sweep_steps=1)})
    table, step = embedding.tables["t"], trainer(embedding)
    table.keep_tombstones()
    for key in range(5):
        step(np.array([key]))
    assert [array.tolist() for array in table.tombstones()] == [[0, 1, 2], [3, 4, 5]]
    table.forget_tombstones(4)
    assert [array.tolist() for array in table.tombstones()] == [[2], [5]]
    assert table.statistics()["expired"] == 3


def test_without_an_export_no_tombstones_are_kept_and_the_table_says_so():
    embedding = layer(table={"expiry": hotrow.Expiry(after_steps=1, sweep_steps=1)})
    table, step = embedding.tables["t"], trainer(embedding)
    for key in range(5):
        step(np.array([key]))
    statistics = table.statistics()
    assert (statistics["expired"], statistics["tombstones"], table.forgotten_step) == (3, 0, 5)
    table.note_exported("a", table.step)
    for key in range(5, 8):
        step(np.array([key]))
    assert [array.tolist() for array in table.tombstones()] == [[3, 4, 5], [6, 7, 8]]
    assert table.forgotten_step == 5
    table.note_exported("b", 7)
    assert table.forgotten_step == 5, "the other place has not taken them"
    table.note_exported("a", 8)
    assert [array.tolist() for array in table.tombstones()] == [[5], [8]]
    assert table.forgotten_step == 7


def test_beyond_the_most_tombstones_the_older_half_is_dropped():
    options = hotrow.Expiry(after_steps=1, sweep_steps=1, tombstones=10)
    embedding = layer(table={"expiry": options})
    table, step = embedding.tables["t"], trainer(embedding)
    table.keep_tombstones()
    for key in range(12):
        step(np.array([key]))
    assert table.statistics()["tombstones"] == 10
    assert table.statistics()["tombstones_dropped"] == table.forgotten_step == 0
    step(np.array([12]))
    assert table.tombstones()[0].tolist() == [6, 7, 8, 9, 10]
    assert table.statistics()["tombstones_dropped"] == 6
    assert table.forgotten_step == 8


def test_evaluation_expires_nothing_and_moves_no_clock():
    model = Model(layer(table={"expiry": hotrow.Expiry(after_steps=1, sweep_steps=1)}))
    model.compile("sgd", "mse")
    model.train_on_batch(np.array([5, 6]), np.ones(2))
    table = model.embedding.tables["t"]
    state, digest = table.state(), table.digest()
    for _ in range(4):
        model.evaluate(np.array([5]), np.ones(1), verbose=0)
        model.predict(np.array([5]), verbose=0)
    assert (table.state(), table.digest()) == (state, digest)


def test_gradients_that_wait_while_their_row_expires_do_not_go_astray():
    """A pass of key 7 waits for a commit that comes after its row expired."""
    embedding = layer(table={"expiry": hotrow.Expiry(after_steps=1, sweep_steps=1)})
    table, step = embedding.tables["t"], trainer(embedding)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(embedding({"f": np.array([7])}, training=True)["f"])
    variables = embedding.trainable_variables
    late = tape.gradient(loss, variables)
    for _ in range(4):
        step(np.array([8]))
    assert set(lines_of(table)) == {8}
    eight = table.lookup(np.array([8]))
    apply(keras.optimizers.SGD(), variables, late)
    first = layer().tables["t"].lookup(np.array([7]), insert=True)
    np.testing.assert_array_equal(table.lookup(np.array([8])), eight)
    np.testing.assert_allclose(table.lookup(np.array([7])), first - 1, atol=1e-6)
