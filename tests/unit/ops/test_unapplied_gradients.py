"""Gradients that are computed and never applied: harmless, and of bounded memory."""

from __future__ import annotations

import resource

import keras
import numpy as np
import pytest
import tensorflow as tf
from unit.ops.small_layer import KEYS, apply, gradients_of, layer, rows

import hotrow

MOVE = np.array([[2], [1], [1]])


def start():
    return layer().tables["t"].lookup(np.array([1, 2, 3]), insert=True)


@pytest.mark.parametrize("micro_steps", [None, 2], ids=["plain", "accumulating"])
@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
def test_gradients_looked_at_in_every_step_change_nothing(micro_steps, in_function):
    embedding = layer()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=micro_steps)
    optimizer.build(embedding.trainable_variables)

    def step():
        gradients_of(embedding, weight=100.0)
        apply(optimizer, *gradients_of(embedding))

    step = tf.function(step) if in_function else step
    for _ in range(300):
        step()
    steps = 300 // (micro_steps or 1)
    assert embedding.tables["t"].step == steps
    np.testing.assert_allclose(rows(embedding), start() - steps * MOVE, atol=1e-3)


def test_gradients_looked_at_in_every_step_keep_little_memory():
    table = hotrow.TableConfig("t", 256, optimizer=hotrow.SGD(1.0), combiner="sum")
    embedding = hotrow.DistributedEmbedding([hotrow.FeatureConfig("f", table)], seed=3)
    optimizer = keras.optimizers.SGD(0.1)
    keys = np.arange(8192)  # 8 MiB a pass
    peaks = []
    for step in range(150):
        for applied in (False, True):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(embedding({"f": keys}, training=True)["f"])
            variables = embedding.trainable_variables
            gradients = tape.gradient(loss, variables)
            if applied:
                apply(optimizer, variables, gradients)
        if step in (30, 149):
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    assert peaks[1] - peaks[0] < 300 << 20  # 120 steps more keep 960 MiB otherwise


def test_gradients_of_another_step_may_be_applied_for_a_while():
    embedding, optimizer = layer(), keras.optimizers.SGD(0.1)
    early, late = gradients_of(embedding), gradients_of(embedding)
    for _ in range(16):
        apply(optimizer, *gradients_of(embedding))
    apply(optimizer, *early)
    np.testing.assert_allclose(rows(embedding), start() - 17 * MOVE, atol=1e-4)
    with pytest.raises(tf.errors.FailedPreconditionError, match="compute them again"):
        apply(optimizer, *late)
    apply(optimizer, *gradients_of(embedding))
    assert embedding.tables["t"].step == 18


def test_micro_steps_of_one_step_may_have_256_backward_passes():
    embedding = layer()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=256)
    for _ in range(256):
        apply(optimizer, *gradients_of(embedding))
    np.testing.assert_allclose(rows(embedding), start() - MOVE, atol=1e-4)


def test_only_looking_ends_in_an_error_that_says_what_to_do():
    embedding = layer()
    with pytest.raises(tf.errors.FailedPreconditionError, match="training=False where only"):
        for _ in range(1025):
            gradients_of(embedding)
    assert embedding({"f": KEYS}, training=False)["f"].shape == (4, 4)
