"""Dropout of a rank's part of a batch is that of one process."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from hotrow.trainer.models.dropout import Dropout, part_of_batch

VALUES = np.random.default_rng(0).normal(size=(11, 6)).astype(np.float32)


@pytest.mark.parametrize("ranks", [1, 2, 3, 20])
def test_the_parts_of_all_ranks_are_dropped_as_one_batch(ranks):
    whole = Dropout(0.4, seed=3)
    expected = [whole(VALUES, training=True).numpy() for _ in range(2)]
    assert not np.array_equal(expected[0], expected[1])
    layers = [Dropout(0.4, seed=3) for _ in range(ranks)]
    for step in range(2):
        parts = []
        for rank, layer in enumerate(layers):
            first = rank * len(VALUES) // ranks
            stop = (rank + 1) * len(VALUES) // ranks
            with part_of_batch(tf.constant(first), tf.constant(len(VALUES))):
                parts.append(layer(VALUES[first:stop], training=True).numpy())
        np.testing.assert_array_equal(np.concatenate(parts), expected[step])


def test_nothing_is_dropped_outside_of_training():
    with part_of_batch(tf.constant(0), tf.constant(11)):
        np.testing.assert_array_equal(Dropout(0.4, seed=3)(VALUES[:4], training=False), VALUES[:4])
