"""When rows are updated, by what, and what is refused."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.small_layer import KEYS, Model, apply, gradients_of, layer, rows

import hotrow
from hotrow.errors import InvalidArgumentError
from hotrow.ops.anchor import UNCHANGED


def test_two_uses_of_a_layer_commit_once_with_the_sum_of_gradients():
    once, twice = layer(optimizer=hotrow.Adagrad(0.5)), layer(optimizer=hotrow.Adagrad(0.5))
    for embedding, calls, weight in ((once, 1, 2.0), (twice, 2, 1.0)):
        with tf.GradientTape() as tape:
            total = sum(embedding({"f": KEYS}, training=True)["f"] for _ in range(calls))
            loss = weight * tf.reduce_sum(total)
        variables = embedding.trainable_variables
        keras.optimizers.SGD().apply_gradients(
            zip(tape.gradient(loss, variables), variables, strict=True)
        )
    assert twice.tables["t"].step == 1
    np.testing.assert_allclose(rows(twice), rows(once), atol=1e-6)


def test_two_uses_with_update_in_backward_are_refused_by_name():
    model = Model(layer("backward"), calls=2)
    model.compile("sgd", "mse")
    with pytest.raises(tf.errors.FailedPreconditionError, match="set update='step'"):
        model.train_on_batch(KEYS, np.ones(4))


def test_a_frozen_layer_neither_learns_nor_inserts():
    model = Model(layer())
    model.compile("sgd", "mse")
    model.train_on_batch(KEYS, np.zeros(4))
    digest = model.embedding.tables["t"].digest()
    model.embedding.trainable = False
    model.compile("sgd", "mse")
    model.fit(np.array([1, 2, 77]), np.ones(3), epochs=2, verbose=0)
    assert model.embedding.tables["t"].digest() == digest
    model.embedding.trainable = True
    model.compile("sgd", "mse")
    model.train_on_batch(KEYS, np.ones(4))
    assert model.embedding.tables["t"].digest() != digest


def test_learned_weights_of_a_frozen_layer_do_not_move_rows():
    embedding = layer(trainable=False)
    scale = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        weights = tf.ones([4]) * scale
        loss = tf.reduce_sum(embedding({"f": KEYS}, weights={"f": weights}, training=True)["f"])
    assert tape.gradient(loss, scale) is None
    assert embedding.tables["t"].step == 0


@pytest.mark.parametrize("make", [
    pytest.param(lambda k: keras.optimizers.SGD(0.1, gradient_accumulation_steps=k), id="SGD"),
    pytest.param(lambda k: keras.optimizers.Adam(0.1, gradient_accumulation_steps=k), id="Adam"),
])  # fmt: skip
def test_gradient_accumulation_commits_the_mean_on_its_last_micro_step(make):
    embedding = layer()
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    optimizer = make(3)
    steps = []
    for _ in range(6):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"])
        variables = embedding.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        steps.append(embedding.tables["t"].step)
    assert steps == [0, 0, 1, 1, 1, 2]
    np.testing.assert_allclose(rows(embedding), start - 2 * np.array([[2], [1], [1]]), atol=1e-5)


def test_gradient_accumulation_in_fit_equals_one_big_batch():
    small, big = Model(layer()), Model(layer())
    for model, accumulation in ((small, 2), (big, None)):
        model.compile(keras.optimizers.SGD(0.0, gradient_accumulation_steps=accumulation), "mse")
    labels = np.array([1.0, 2.0, 3.0, 4.0])
    small.fit(KEYS, labels, batch_size=2, shuffle=False, verbose=0)
    big.fit(KEYS, labels, batch_size=4, shuffle=False, verbose=0)
    np.testing.assert_allclose(rows(small.embedding), rows(big.embedding), atol=1e-6)


def test_scaled_or_clipped_gradients_scale_the_rows_too():
    embedding = layer()
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"])
    variables = embedding.trainable_variables
    gradients = [g * 0.25 for g in tape.gradient(loss, variables)]
    keras.optimizers.SGD(0.1).apply_gradients(zip(gradients, variables, strict=True))
    np.testing.assert_allclose(rows(embedding), start - 0.25 * np.array([[2], [1], [1]]), atol=1e-6)


def test_a_gradient_computed_twice_by_a_persistent_tape_is_applied_once():
    embedding = layer()
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"])
    variables = embedding.trainable_variables
    tape.gradient(loss, variables)
    gradients = tape.gradient(loss, variables)
    keras.optimizers.SGD(0.1).apply_gradients(zip(gradients, variables, strict=True))
    np.testing.assert_allclose(rows(embedding), start - np.array([[2], [1], [1]]), atol=1e-6)


@pytest.mark.parametrize("optimizer", [
    pytest.param(lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()), id="wrapper"),
    pytest.param(lambda: keras.optimizers.SGD(loss_scale_factor=128.0), id="factor"),
])  # fmt: skip
def test_loss_scaling_is_refused_by_name(optimizer):
    model = Model(layer())
    model.compile(optimizer(), "mse")
    with pytest.raises(InvalidArgumentError, match="loss scaling is not supported"):
        model.train_on_batch(KEYS, np.ones(4))
    assert model.embedding.tables["t"].step == 0


def test_the_policy_mixed_float16_is_refused_by_name():
    with pytest.raises(InvalidArgumentError, match="use 'mixed_bfloat16' or 'float32'"):
        layer(dtype="mixed_float16")


def test_keras_does_not_compile_the_layer_with_xla():
    model = Model(layer())
    model.compile("sgd", "mse", jit_compile="auto")
    model.train_on_batch(KEYS, np.ones(4))
    assert model.jit_compile is False


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad", "rmsprop", "ftrl", "lion"])
def test_every_keras_optimizer_commits_and_leaves_the_anchor_as_it_is(optimizer):
    model = Model(layer())
    model.compile(optimizer, "mse")
    model.fit(KEYS, np.ones(4), epochs=2, verbose=0)
    assert model.embedding.tables["t"].step == 2
    assert (model.embedding.anchor.numpy() == UNCHANGED).all()


@pytest.mark.parametrize("write", [
    pytest.param(lambda v, g: v.assign_sub(1e-6 * g), id="a tiny rate"),
    pytest.param(lambda v, g: v.assign_sub(10.0 * g), id="a huge rate"),
    pytest.param(lambda v, g: v.assign_sub(0.1 * g), id="assign_sub"),
    pytest.param(lambda v, g: v.assign(v - 0.1 * g), id="assign"),
    pytest.param(lambda v, g: v.assign_add(-0.1 * g), id="assign_add"),
])  # fmt: skip
def test_a_hand_written_update_of_all_variables_commits(write):
    embedding = layer()
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    for variable, gradient in zip(*gradients_of(embedding), strict=True):
        write(variable, gradient)
    assert embedding.tables["t"].step == 1
    np.testing.assert_allclose(rows(embedding), start - np.array([[2], [1], [1]]), atol=1e-6)


def test_gradients_that_were_only_looked_at_do_not_reach_the_next_step():
    embedding, optimizer = layer(), keras.optimizers.SGD(0.1)
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    gradients_of(embedding, weight=100.0)
    gradients_of(embedding, weight=float("nan"))
    apply(optimizer, *gradients_of(embedding))
    np.testing.assert_allclose(rows(embedding), start - np.array([[2], [1], [1]]), atol=1e-6)


def test_gradients_of_several_losses_may_be_applied_one_after_the_other():
    embedding, optimizer = layer(), keras.optimizers.SGD(0.1)
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    first, second = gradients_of(embedding), gradients_of(embedding, weight=2.0)
    apply(optimizer, *first)
    np.testing.assert_allclose(rows(embedding), start - np.array([[2], [1], [1]]), atol=1e-6)
    apply(optimizer, *second)
    np.testing.assert_allclose(rows(embedding), start - 3 * np.array([[2], [1], [1]]), atol=1e-5)


def test_gradients_that_a_loop_adds_up_are_applied_as_their_sum():
    embedding, optimizer = layer(), keras.optimizers.SGD(0.1)
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    (variables, one), (_, two) = gradients_of(embedding), gradients_of(embedding, weight=2.0)
    apply(optimizer, variables, [a + 0.5 * b for a, b in zip(one, two, strict=True)])
    np.testing.assert_allclose(rows(embedding), start - 2 * np.array([[2], [1], [1]]), atol=1e-6)


def test_gradients_may_change_their_sign():
    embedding, optimizer = layer(), keras.optimizers.SGD(0.1)
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    variables, gradients = gradients_of(embedding)
    apply(optimizer, variables, [-2.0 * g for g in gradients])
    np.testing.assert_allclose(rows(embedding), start + 2 * np.array([[2], [1], [1]]), atol=1e-6)


def test_a_step_of_gradients_times_zero_changes_nothing_and_is_no_micro_step():
    embedding, optimizer = layer(), keras.optimizers.SGD(0.1)
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    variables, gradients = gradients_of(embedding)
    apply(optimizer, variables, [0.0 * g for g in gradients])
    np.testing.assert_array_equal(rows(embedding), start)
    apply(optimizer, *gradients_of(embedding))
    np.testing.assert_allclose(rows(embedding), start - np.array([[2], [1], [1]]), atol=1e-6)


def test_a_norm_over_all_gradients_does_not_see_the_anchor():
    embedding = layer()
    _, (gradient,) = gradients_of(embedding)
    assert 0 < float(tf.norm(gradient)) < 1e-5


def test_accumulation_counts_micro_steps_whatever_the_uses_of_the_layer():
    embedding = layer()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    start = layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)
    apply(optimizer, *gradients_of(embedding))
    with tf.GradientTape() as tape:
        loss = sum(tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"]) for _ in range(2))
    variables = embedding.trainable_variables
    apply(optimizer, variables, tape.gradient(loss, variables))
    np.testing.assert_allclose(rows(embedding), start - 1.5 * np.array([[2], [1], [1]]), atol=1e-6)


def test_more_micro_steps_than_slots_are_refused_and_fewer_are_exact():
    embedding = layer()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=257)
    with pytest.raises(tf.errors.FailedPreconditionError, match="more than 256 backward passes"):
        for _ in range(257):
            apply(optimizer, *gradients_of(embedding))
    assert embedding.tables["t"].step == 0


def test_writing_past_keras_is_refused_at_the_next_lookup():
    embedding = layer()
    variables, gradients = gradients_of(embedding)
    for variable, gradient in zip(variables, gradients, strict=True):
        variable.value.assign_sub(0.1 * gradient)
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"not their \.value"):
        gradients_of(embedding)


def test_averaged_weights_are_refused_by_name():
    model = Model(layer())
    model.compile(keras.optimizers.SGD(use_ema=True), "mse")
    with pytest.raises(InvalidArgumentError, match="leave use_ema out"):
        model.train_on_batch(KEYS, np.ones(4))


@pytest.mark.parametrize("change", [
    pytest.param(lambda g: g * 0.5, id="scaled"),
    pytest.param(lambda g: g + g, id="added"),
])  # fmt: skip
def test_update_in_backward_refuses_gradients_that_changed_afterwards(change):
    embedding, optimizer = layer("backward"), keras.optimizers.SGD(0.1)
    apply(optimizer, *gradients_of(embedding))
    variables, gradients = gradients_of(embedding)
    with pytest.raises(tf.errors.FailedPreconditionError, match="set update='step'"):
        apply(optimizer, variables, [change(g) for g in gradients])


def test_update_in_backward_refuses_gradient_accumulation():
    embedding = layer("backward")
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    with pytest.raises(tf.errors.FailedPreconditionError, match="set update='step'"):
        apply(optimizer, *gradients_of(embedding))


def test_update_in_backward_goes_on_after_a_step_that_was_interrupted():
    embedding, optimizer = layer("backward"), keras.optimizers.SGD(0.1)
    gradients_of(embedding)  # never applied, as after Ctrl-C
    apply(optimizer, *gradients_of(embedding))
    assert embedding.tables["t"].step == 2


def test_gradients_that_are_never_applied_end_in_an_error():
    embedding = layer()
    with pytest.raises(tf.errors.FailedPreconditionError, match="trainable_variables"):
        for _ in range(1025):
            gradients_of(embedding)


def test_a_lookup_of_constant_keys_is_not_folded():
    embedding = layer()
    optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def look():
        return embedding({"f": tf.constant([1], tf.int64)})["f"]

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"])
    before = look().numpy()
    optimizer.apply_gradients(
        zip(
            tape.gradient(loss, embedding.trainable_variables),
            embedding.trainable_variables,
            strict=True,
        )
    )
    np.testing.assert_allclose(look().numpy(), before - 2, atol=1e-6)
