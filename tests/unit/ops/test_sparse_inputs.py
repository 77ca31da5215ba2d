"""Sparse inputs: weights that belong to their keys, and what TensorFlow's lookup prunes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import hotrow

INDICES = [[0, 0], [0, 2], [2, 1]]


def sparse(values, indices=INDICES, dtype=tf.int64):
    return tf.SparseTensor(indices, tf.constant(values, dtype), [3, 3])


def layer(combiner="sum", **options):
    table = hotrow.TableConfig("t", 4, combiner=combiner)
    return hotrow.DistributedEmbedding(hotrow.FeatureConfig("f", table, **options), seed=3)


@pytest.mark.parametrize("in_function", [True, False], ids=["tf.function", "eager"])
@pytest.mark.parametrize(
    "indices",
    [[[0, 0], [0, 1], [2, 1]], [[0, 2], [0, 0], [2, 1]], INDICES[:2]],
    ids=["another column", "another order", "fewer"],
)
def test_weights_with_other_indices_than_the_keys_are_refused(indices, in_function):
    embedding = layer()

    def call(keys, weights):
        return embedding({"f": keys}, weights={"f": weights}, training=True)["f"]

    call = tf.function(call) if in_function else call
    weights = sparse([2.0, 3.0, 4.0][: len(indices)], indices, tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="weights with other indices"):
        call(sparse([1, 2, 3]), weights)
    assert embedding.tables["t"].size == 0


def test_weights_with_equal_indices_are_taken():
    embedding = layer()
    weights = sparse([2.0, 3.0, 4.0], dtype=tf.float32)
    pooled = embedding({"f": sparse([1, 2, 3])}, weights={"f": weights}, training=True)["f"]
    rows = embedding.tables["t"].lookup(np.array([1, 2, 3]))
    expected = [2 * rows[0] + 3 * rows[1], np.zeros(4), 4 * rows[2]]
    np.testing.assert_allclose(pooled, expected, rtol=1e-6)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_one_negative_key_is_pruned_by_a_mask_as_tensorflow_prunes_it(combiner):
    masked, keys = layer(combiner, mask_value=-1), sparse([1, -1, 3])
    pooled = masked({"f": keys}, training=True)["f"]
    assert -1 not in masked.tables["t"]
    assert_like_tensorflow(masked, pooled, keys, None, combiner)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_other_negative_keys_and_weights_are_pruned_before_the_layer(combiner):
    embedding, keys = layer(combiner), sparse([5, -7, 3])
    weights = sparse([2.0, 1.0, -1.0], dtype=tf.float32)
    kept = (keys.values >= 0) & (weights.values > 0)
    pooled = embedding(
        {"f": tf.sparse.retain(keys, kept)},
        weights={"f": tf.sparse.retain(weights, kept)},
        training=True,
    )["f"]
    assert len(embedding.tables["t"]) == 1
    assert_like_tensorflow(embedding, pooled, keys, weights, combiner)


def assert_like_tensorflow(embedding, pooled, keys, weights, combiner):
    """Compares with the lookup that prunes negative keys, and weights that are not positive."""
    rows = embedding.tables["t"].lookup(np.arange(8))
    expected = tf.nn.safe_embedding_lookup_sparse(rows, keys, weights, combiner)
    np.testing.assert_allclose(pooled, expected, rtol=1e-6)
