"""Strings to keys in a graph (design D9b): the function of `hotrow._native.fingerprint64`."""

from __future__ import annotations

import tensorflow as tf

SEPARATOR = "\x1f"


def fingerprint_keys(feature: str, values: tf.Tensor) -> tf.Tensor:
    """Returns int64 keys, of the shape of `values`: Fingerprint64 of `feature \\x1f value`.

    Args:
        feature: the name of the feature.
        values: string tensor of any shape.
    """
    flat = tf.reshape(values, [-1])
    text = tf.strings.join([tf.constant((feature + SEPARATOR).encode()), flat])
    keys = tf.bitcast(tf.fingerprint(text), tf.int64)
    return tf.reshape(keys, tf.shape(values))
