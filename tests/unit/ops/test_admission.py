"""Which keys get a row: exactly at the n-th occurrence, or by a filter that is never late."""

from __future__ import annotations

from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.pooled_tables import lines_of
from unit.ops.small_layer import KEYS, Model, apply, layer

import hotrow
from hotrow.ops.table import Table

OCCURRENCES = 4


def trainer(embedding, **options):
    """Returns a function that trains on keys [N] with gradient 1 and returns the rows read."""
    optimizer = keras.optimizers.SGD(0.1, **options)

    def step(keys):
        with tf.GradientTape() as tape:
            read = embedding({"f": keys}, training=True)["f"]
            loss = tf.reduce_sum(read)
        variables = embedding.trainable_variables
        apply(optimizer, variables, tape.gradient(loss, variables))
        return read.numpy()

    return step


@pytest.mark.parametrize("update", ["step", "backward"])
def test_a_key_is_admitted_exactly_at_its_nth_occurrence(update):
    options = {"admission": hotrow.Admission(OCCURRENCES), "default_value": 0.5}
    embedding = layer(update, hotrow.SGD(0.125), table=options)
    table, step = embedding.tables["t"], trainer(embedding)
    everything = np.arange(-20, 20)
    first = layer().tables["t"].lookup(everything, insert=True)
    expected = dict(zip(everything.tolist(), first, strict=True))
    seen, refused, random = Counter(), 0, np.random.default_rng(1)
    for _ in range(40):
        keys = random.integers(-20, 20, random.integers(0, 12))
        times = Counter(keys.tolist())
        # Occurrences count with their multiplicity, before the batch is read.
        admitted_before = {key for key in seen if seen[key] >= OCCURRENCES}
        seen.update(times)
        rows = {key: expected[key] for key in times if seen[key] >= OCCURRENCES}
        refused += sum(times[key] for key in times if key not in rows)
        read = step(keys)
        for key, row in zip(keys.tolist(), read, strict=True):
            np.testing.assert_array_equal(row, rows.get(key, np.full(4, 0.5)))
        for key in rows:
            expected[key] = expected[key] - np.float32(0.125 * times[key])
        held = {key: line[0] for key, line in lines_of(table).items()}
        assert set(held) == admitted_before | set(rows)
        for key in held:
            np.testing.assert_allclose(held[key], expected[key], atol=1e-6)
        statistics = table.statistics()
        assert statistics["admitted"] == statistics["rows"] == len(held)
        assert statistics["waiting"] == len(seen) - len(held)
        assert statistics["refused"] == refused
    assert 5 < len(held) < 40


def test_one_occurrence_admits_every_key_at_once():
    embedding = layer(table={"admission": hotrow.Admission(1)})
    read = trainer(embedding)(KEYS)
    first = layer().tables["t"].lookup(KEYS, insert=True)
    np.testing.assert_array_equal(read, first)
    assert embedding.tables["t"].size == 3


@pytest.mark.parametrize("filter_options", [{}, {"filter": "bloom", "expected_keys": 1000}])
def test_evaluation_neither_counts_nor_admits(filter_options):
    admission = hotrow.Admission(2, **filter_options)
    model = Model(layer(table={"admission": admission}))
    model.compile("sgd", "mse")
    model.train_on_batch(np.array([5]), np.ones(1))
    table = model.embedding.tables["t"]
    state, digest = table.state(), table.digest()
    for _ in range(3):
        model.evaluate(np.array([5, 5, 6]), np.ones(3), verbose=0)
        model.predict(np.array([5, 5, 6]), verbose=0)
    assert (table.state(), table.digest(), table.size) == (state, digest, 0)
    model.train_on_batch(np.array([5]), np.ones(1))
    assert table.size == 1


@pytest.mark.parametrize("micro_steps", [None, 2])
def test_a_step_in_which_no_key_is_admitted_is_a_step(micro_steps):
    embedding = layer(table={"admission": hotrow.Admission(9)}, global_clipnorm=1.0)
    step = trainer(embedding, gradient_accumulation_steps=micro_steps)
    for _ in range(micro_steps or 1):
        step(KEYS)
    assert embedding.tables["t"].step == 1
    assert embedding.tables["t"].size == 0


def test_accumulated_gradients_of_a_key_count_from_its_admission_on():
    embedding = layer(table={"admission": hotrow.Admission(2)})
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    for _ in range(2):  # the second micro-step admits the key
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embedding({"f": np.array([7])}, training=True)["f"])
        variables = embedding.trainable_variables
        apply(optimizer, variables, tape.gradient(loss, variables))
    start = layer().tables["t"].lookup(np.array([7]), insert=True)
    moved = start - embedding.tables["t"].lookup(np.array([7]))
    np.testing.assert_allclose(moved, np.full((1, 4), 0.5), atol=1e-6)


def test_a_step_of_two_uses_drops_the_gradient_of_the_use_before_the_admission():
    embedding = layer(table={"admission": hotrow.Admission(2)})
    with tf.GradientTape() as tape:  # gradients come in the reverse order of the uses
        reads = [embedding({"f": np.array([7])}, training=True)["f"] for _ in range(2)]
        loss = tf.reduce_sum(reads[0]) + 3.0 * tf.reduce_sum(reads[1])
    variables = embedding.trainable_variables
    apply(keras.optimizers.SGD(0.1), variables, tape.gradient(loss, variables))
    start = layer().tables["t"].lookup(np.array([7]), insert=True)
    np.testing.assert_array_equal(reads[0].numpy(), np.zeros((1, 4)))
    np.testing.assert_array_equal(reads[1].numpy(), start)
    moved = start - embedding.tables["t"].lookup(np.array([7]))
    np.testing.assert_allclose(moved, np.full((1, 4), 3.0), atol=1e-6)


ERROR_RATE, EXPECTED = 0.02, 20_000


def bloom_table(occurrences):
    admission = hotrow.Admission(occurrences, "bloom", EXPECTED, ERROR_RATE)
    return Table(hotrow.TableConfig("t", 1, admission=admission), seed=1)


def test_a_filter_is_never_late_and_early_at_most_at_its_error_rate():
    table = bloom_table(2)
    keys = np.random.default_rng(2).integers(-(2**63), 2**63 - 1, EXPECTED)
    for part in np.split(keys, 20):
        table.lookup(part, insert=True)
    # The filter is full now: a new key is early with the stated probability, or less.
    early_before = table.size
    assert early_before <= ERROR_RATE * EXPECTED
    table.lookup(keys, insert=True)
    assert table.size == EXPECTED  # all had their second occurrence


def test_new_keys_meet_the_error_rate_of_a_full_filter():
    table = bloom_table(2)
    random = np.random.default_rng(3)
    table.lookup(random.integers(-(2**63), 2**63 - 1, EXPECTED), insert=True)
    before, new = table.size, 5_000
    table.lookup(random.integers(-(2**63), 2**63 - 1, new), insert=True)
    early = table.size - before
    # Three standard errors beyond the rate; the filter really errs, else it is not one.
    assert 0 < early < ERROR_RATE * new + 3 * np.sqrt(ERROR_RATE * new)


def test_a_filter_counts_up_to_many_occurrences_and_is_never_late():
    table, exact = bloom_table(10), Counter()
    random = np.random.default_rng(4)
    for _ in range(60):
        keys = random.zipf(1.3, 500).astype(np.int64)
        table.lookup(keys, insert=True)
        exact.update(keys.tolist())
        due = {key for key, times in exact.items() if times >= 10}
        held = {int(key) for batch in table.export_batches() for key in batch.keys}
        assert due <= held
    assert len(held - due) <= ERROR_RATE * (len(exact) - len(due)) + 3
    assert len(due) > 50
