"""Strings to keys in a graph, as `hotrow._native.fingerprint64` computes them."""

from __future__ import annotations

import tensorflow as tf


def fingerprint_keys(prefix: bytes, values: tf.Tensor) -> tf.Tensor:
    """Returns int64 keys, of the shape of `values`: Fingerprint64 of `prefix + value`.

    Args:
        prefix: the name of the table and 0x1f.
        values: string tensor of any shape.
    """
    # TensorFlow hashes a vector string by string; for other shapes it would hash the hashes.
    text = tf.strings.join([tf.constant(prefix), tf.reshape(values, [-1])])
    keys = tf.bitcast(tf.fingerprint(text), tf.int64)
    return tf.reshape(keys, tf.shape(values))
