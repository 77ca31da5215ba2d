"""What a Keras program may do with the layer: the table of that name in docs/training.md."""

from __future__ import annotations

import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.small_layer import KEYS, Model, apply, gradients_of, layer, rows

import hotrow

ROOT = Path(__file__).parents[3]
MOVE = np.array([[2], [1], [1]])


def start():
    return layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)


def functional(name="keys"):
    keys = keras.Input((), dtype="int64", name=name)
    return keras.Model(keys, keras.layers.Dense(1)(layer()({"f": keys})["f"]))


def embedding_of(model):
    return next(x for x in model.layers if isinstance(x, hotrow.DistributedEmbedding))


def test_every_row_of_the_table_names_tests_that_exist():
    page = (ROOT / "docs" / "training.md").read_text()
    section = page.split("### What a Keras program may do with the layer")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(lines) > 15
    for line in lines:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", line)
        assert named, line
        for file, test in named:
            source = (ROOT / "tests" / "unit" / "ops" / file).read_text()
            assert f"def {test}(" in source, f"{file}::{test}"


def built():
    model = Model(layer(optimizer=hotrow.SGD(0.1)))
    model(KEYS)
    return model


CALLBACKS = {
    "ModelCheckpoint": lambda folder: keras.callbacks.ModelCheckpoint(
        folder / "model.weights.h5", save_weights_only=True
    ),
    "BackupAndRestore": lambda folder: keras.callbacks.BackupAndRestore(folder / "backup"),
    "CSVLogger": lambda folder: keras.callbacks.CSVLogger(folder / "log.csv"),
    "TerminateOnNaN": lambda folder: keras.callbacks.TerminateOnNaN(),
    "LambdaCallback": lambda folder: keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: None
    ),
    "hotrow.EarlyStopping": lambda folder: hotrow.EarlyStopping("loss", patience=9),
}


@pytest.mark.parametrize("make", CALLBACKS.values(), ids=CALLBACKS.keys())
def test_fit_with_a_callback_trains_as_without(make, tmp_path):
    trained = []
    for callbacks in ([], [make(tmp_path)]):
        model = built()
        model.compile(keras.optimizers.SGD(0.001), "mse")
        model.fit(KEYS, np.ones(4), epochs=3, verbose=0, callbacks=callbacks)
        assert model.embedding.tables["t"].step == 3
        trained.append((rows(model.embedding), model.dense.kernel.numpy()))
    np.testing.assert_array_equal(trained[0][0], trained[1][0])
    np.testing.assert_array_equal(trained[0][1], trained[1][1])


def test_a_callback_that_sets_the_learning_rate_sets_that_of_dense_weights_alone():
    model = built()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    stop = keras.callbacks.LearningRateScheduler(lambda epoch: 0.0)
    kernel = model.dense.kernel.numpy()
    before = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    model.fit(KEYS, np.ones(4), verbose=0, callbacks=[stop])
    np.testing.assert_array_equal(model.dense.kernel.numpy(), kernel)
    assert (rows(model.embedding) != before).all()


def test_two_optimizers_may_share_the_variables_of_a_model():
    """The rows follow the anchor, whichever optimizer has it."""
    model = Model(layer())
    model(KEYS)
    before = start()
    wide, deep = keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.1)
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(KEYS, training=True))
        variables = [*model.embedding.trainable_variables, *model.dense.trainable_variables]
        anchor, kernel = tape.gradient(loss, variables)
        wide.apply([anchor], variables[:1])
        deep.apply([kernel], variables[1:])
        model.dense.kernel.assign(tf.ones_like(model.dense.kernel))
    assert model.embedding.tables["t"].step == 3
    np.testing.assert_allclose(rows(model.embedding), before - 3 * MOVE, atol=1e-5)


def test_two_optimizers_may_take_turns_each_with_a_loss_of_its_own():
    embedding = layer()
    generator, critic = keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.1)
    for _ in range(3):
        first, second = gradients_of(embedding), gradients_of(embedding, weight=2.0)
        apply(generator, *first)
        apply(critic, *second)
    assert embedding.tables["t"].step == 6
    np.testing.assert_allclose(rows(embedding), start() - 9 * MOVE, atol=1e-4)


@pytest.mark.parametrize("clip", ["clipnorm", "clipvalue", "global_clipnorm"])
def test_clipping_of_a_keras_optimizer_clips_dense_gradients_alone(clip):
    trained = []
    for options in ({}, {clip: 1e-6}):
        model = Model(layer())
        model.compile(keras.optimizers.SGD(1.0, **options), "mse")
        model.train_on_batch(KEYS, 5 * np.ones(4))
        trained.append((rows(model.embedding), model.dense.kernel.numpy()))
    np.testing.assert_array_equal(trained[0][0], trained[1][0])
    assert np.abs(trained[0][1] - 1.0).max() > 0.01
    assert np.abs(trained[1][1] - 1.0).max() <= 1.1e-6


def test_weights_of_another_model_are_dense_weights_alone():
    one, other = built(), built()
    one.compile(keras.optimizers.SGD(0.1), "mse")
    one.fit(KEYS, np.ones(4), epochs=3, verbose=0)
    before = other.embedding.tables["t"].digest()
    other.set_weights(one.get_weights())
    np.testing.assert_array_equal(other.dense.kernel.numpy(), one.dense.kernel.numpy())
    assert other.embedding.tables["t"].digest() == before


def test_clone_model_makes_empty_tables_of_the_same_first_values():
    model = functional()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(KEYS, np.ones(4), verbose=0)
    digest = embedding_of(model).tables["t"].digest()
    clone = keras.models.clone_model(model)
    assert embedding_of(clone).tables["t"].size == 0
    clone.compile(keras.optimizers.SGD(0.0), "mse")
    clone.set_weights(model.get_weights())
    table = embedding_of(clone).tables["t"]
    np.testing.assert_array_equal(table.lookup(np.array([1, 2, 3]), insert=True), start())
    clone.fit(KEYS, np.ones(4), verbose=0)
    assert table.step == 1
    assert embedding_of(model).tables["t"].digest() == digest


@pytest.mark.parametrize("how", ["graph", "eager", "steps_per_execution"])
def test_fit_trains_alike_however_it_runs_a_step(how):
    options = {"eager": {"run_eagerly": True}, "steps_per_execution": {"steps_per_execution": 3}}
    trained = []
    for given in ({}, options.get(how, {})):
        model = Model(layer())
        model.compile(keras.optimizers.SGD(0.01), "mse", **given)
        model.fit(np.tile(KEYS, 6), np.ones(24), batch_size=4, shuffle=False, verbose=0)
        assert model.embedding.tables["t"].step == 6
        trained.append(rows(model.embedding))
    np.testing.assert_allclose(trained[0], trained[1], atol=1e-6)


def test_mixed_bfloat16_trains_float32_rows():
    policy = keras.dtype_policies.DTypePolicy("mixed_bfloat16")
    model = Model(layer(dtype=policy))
    model.dense.dtype_policy = policy
    model.compile(keras.optimizers.SGD(0.01), "mse")
    model.fit(KEYS, np.ones(4), epochs=2, verbose=0)
    assert model.embedding({"f": KEYS})["f"].dtype == tf.bfloat16
    assert rows(model.embedding).dtype == np.float32
    assert model.embedding.tables["t"].step == 2


def test_functions_in_functions_and_loops_in_them_commit_each_step():
    embedding, optimizer = layer(), keras.optimizers.SGD(0.1)
    optimizer.build(embedding.trainable_variables)

    @tf.function
    def step(keys):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embedding({"f": keys}, training=True)["f"])
        variables = embedding.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    @tf.function
    def epoch(steps):
        total = step(KEYS)
        for _ in tf.range(steps - 1):
            total += step(KEYS)
        return total

    epoch(tf.constant(5))
    assert embedding.tables["t"].step == 5
    np.testing.assert_allclose(rows(embedding), start() - 5 * MOVE, atol=1e-4)


def test_gradient_accumulation_in_a_loop_of_a_function_takes_the_mean():
    embedding = layer()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    optimizer.build(embedding.trainable_variables)

    @tf.function
    def epoch(steps):
        for _ in tf.range(steps):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"])
            variables = embedding.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)

    epoch(tf.constant(6))
    assert embedding.tables["t"].step == 2
    np.testing.assert_allclose(rows(embedding), start() - 2 * MOVE, atol=1e-5)


def test_jit_compile_is_left_out_with_a_warning():
    model = built()
    with pytest.warns(UserWarning, match="jit_compile"):
        model.compile("sgd", "mse", jit_compile=True)
    model.fit(KEYS, np.ones(4), verbose=0)
    assert model.embedding.tables["t"].step == 1
