"""Dropout and batch normalisation of ranks' parts of a batch are those of one process."""

from __future__ import annotations

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from traced import traced

from hotrow.ops.ranks import LONE, thread_ranks
from hotrow.trainer.models.batch_norm import BatchNormalization
from hotrow.trainer.models.dropout import Dropout
from hotrow.trainer.models.part_of_batch import part_of_batch

VALUES = np.random.default_rng(0).normal(3.0, 2.0, size=(11, 6)).astype(np.float32)


def part_of(values, rank, ranks):
    return values[rank * len(values) // ranks : (rank + 1) * len(values) // ranks]


@pytest.mark.parametrize("ranks", [1, 2, 3, 20])
def test_the_parts_of_all_ranks_are_dropped_as_one_batch(ranks):
    whole = Dropout(0.4, seed=3)
    expected = [whole(VALUES, training=True).numpy() for _ in range(2)]
    assert not np.array_equal(expected[0], expected[1])
    layers = [Dropout(0.4, seed=3) for _ in range(ranks)]
    group = thread_ranks(ranks, 60.0)
    for step in range(2):
        parts = []
        for rank, layer in zip(group, layers, strict=True):
            with part_of_batch(rank, tf.constant(len(VALUES))):
                own = part_of(VALUES, rank.rank, ranks)
                parts.append(layer(own, training=True).numpy())
        np.testing.assert_array_equal(np.concatenate(parts), expected[step])
    for rank in group:
        rank.close()


def test_nothing_is_dropped_outside_of_training():
    with part_of_batch(LONE, tf.constant(11)):
        np.testing.assert_array_equal(Dropout(0.4, seed=3)(VALUES[:4], training=False), VALUES[:4])


def two_steps(layer, values, weights, compiled=False):
    """Returns outputs, gradients of values, gamma and beta, and the moving mean and variance."""

    def step(given):
        with tf.GradientTape() as tape:
            tape.watch(given)
            outputs = layer(given, training=True)
            # No sample's loss is another one's, so the means of all ranks matter.
            loss = tf.reduce_sum(outputs**2 * weights) / len(VALUES)
        return [outputs, *tape.gradient(loss, [given, layer.gamma, layer.beta])]

    given = tf.constant(values)
    if compiled:
        step = traced(step, given)
    found = [*step(given), *step(given)]
    moving = [layer.moving_mean, layer.moving_variance]
    return [tf.convert_to_tensor(value).numpy() for value in found + moving]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("ranks", [2, 3, 20])
def test_the_parts_of_all_ranks_are_normalised_as_one_batch(ranks, compiled):
    weights = np.random.default_rng(1).random(VALUES.shape, np.float32)
    whole = keras.layers.BatchNormalization(momentum=0.9)
    whole.build(VALUES.shape)
    expected = two_steps(whole, VALUES, weights)
    found = [None] * ranks

    def run(rank):
        layer = BatchNormalization(momentum=0.9, name="norm")
        layer.build(VALUES.shape)
        own, own_weights = (part_of(values, rank.rank, ranks) for values in (VALUES, weights))
        with rank, part_of_batch(rank, tf.constant(len(VALUES))):
            found[rank.rank] = two_steps(layer, own, own_weights, compiled)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in thread_ranks(ranks, 60.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, value in enumerate(expected):
        own = [values[number] for values in found]
        if value.shape == VALUES.shape:
            together = np.concatenate(own)
        elif number >= len(expected) - 2:
            together = own[0]
            assert all(np.array_equal(other, together) for other in own)
        else:  # what the dense part's sums do to gradients of weights
            together = sum(own)
        np.testing.assert_allclose(together, value, rtol=1e-5, atol=1e-6)


def test_whole_batches_and_evaluation_are_kerass():
    own, other = BatchNormalization(momentum=0.9), keras.layers.BatchNormalization(momentum=0.9)
    for training in (True, False):
        found = own(VALUES, training=training)
        np.testing.assert_array_equal(found, other(VALUES, training=training))
    with part_of_batch(LONE, tf.constant(99)):
        np.testing.assert_array_equal(own(VALUES), other(VALUES))
