"""A small embedding layer and model, and one step by hand: what the tests of the layer use."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

import hotrow

KEYS = np.array([1, 2, 3, 1], np.int64)


def layer(update="step", optimizer=None, features=("f",), table=None, **options):
    """Returns a layer of one table "t"; table: more options of it."""
    optimizer = optimizer or hotrow.SGD(1.0)
    table = hotrow.TableConfig("t", 4, optimizer=optimizer, combiner="sum", **(table or {}))
    return hotrow.DistributedEmbedding(
        [hotrow.FeatureConfig(name, table) for name in features], seed=3, update=update, **options
    )


def rows(embedding, keys=(1, 2, 3)):
    return embedding.tables["t"].lookup(np.array(keys, np.int64))


class Model(keras.Model):
    """Sum of the embedded features through one dense unit."""

    def __init__(self, embedding, calls=1):
        super().__init__()
        self.embedding = embedding
        self.dense = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)
        self.calls = calls

    def call(self, keys, training=False):
        total = sum(self.embedding({"f": keys}, training=training)["f"] for _ in range(self.calls))
        return self.dense(total)


def gradients_of(embedding, weight=1.0):
    with tf.GradientTape() as tape:
        loss = weight * tf.reduce_sum(embedding({"f": KEYS}, training=True)["f"])
    return embedding.trainable_variables, tape.gradient(loss, embedding.trainable_variables)


def apply(optimizer, variables, gradients):
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
