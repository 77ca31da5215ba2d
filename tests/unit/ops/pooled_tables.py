"""A layer with one table a way of pooling, random batches for it, and the same in numpy."""

from __future__ import annotations

from itertools import pairwise

import keras
import ml_dtypes
import numpy as np
import tensorflow as tf

import hotrow

KEYS = np.array([0, 1, -1, 7, -(2**63), 2**63 - 1, 10**12, 42, -42, 5], np.int64)
SAMPLES = 4
DIM = 5
# feature: (table, combiner, whether keys have weights)
FEATURES = {
    "none": ("none", None, False),
    "sum": ("sum", "sum", False),
    "mean": ("mean", "mean", False),
    "sqrtn": ("sqrtn", "sqrtn", False),
    "weighted_sum": ("weighted_sum", "sum", True),
    "weighted_mean": ("weighted_mean", "mean", True),
    "weighted_sqrtn": ("weighted_sqrtn", "sqrtn", True),
    "shared_sum": ("shared", "sum", False),
    "shared_mean": ("shared", "mean", True),
}


class Batch:
    """Random keys, weights and gradients of the pooled values, for all features."""

    def __init__(self, random, features=FEATURES, scale=1.0):
        self.positions, self.splits, self.weights, self.gradients = {}, {}, {}, {}
        for name, (_, combiner, weighted) in features.items():
            lengths = random.integers(0, 4, SAMPLES)
            count = int(lengths.sum())
            self.splits[name] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            self.positions[name] = random.integers(0, len(KEYS), count)
            if weighted:
                self.weights[name] = random.uniform(0.25, 2.0, count).astype(np.float32)
            rows = count if combiner is None else SAMPLES
            gradient = scale * random.normal(size=(rows, DIM)) * random.uniform(0.1, 2.0)
            self.gradients[name] = gradient.astype(np.float32)

    def shares(self, name, combiner):
        """Returns the matrix float64 [rows, N] that pools the rows of N keys."""
        splits, count = self.splits[name], len(self.positions[name])
        if combiner is None:
            return np.eye(count)
        matrix = np.zeros((SAMPLES, count))
        weights = np.asarray(self.weights.get(name, np.ones(count)), np.float64)
        for sample, (first, end) in enumerate(pairwise(splits)):
            own = weights[first:end]
            divisor = {"sum": 1.0, "mean": own.sum(), "sqrtn": np.sqrt((own**2).sum())}[combiner]
            if end > first:
                matrix[sample, first:end] = own / divisor
        return matrix


def layer_of(update, features=FEATURES, seed=11, global_clipnorm=None, **options):
    """Returns a layer with the tables that `features` names."""
    names = {table for table, _, _ in features.values()}
    tables = {name: hotrow.TableConfig(name, DIM, **options) for name in sorted(names)}
    return hotrow.DistributedEmbedding(
        [
            hotrow.FeatureConfig(name, tables[table], combiner)
            for name, (table, combiner, _) in features.items()
        ],
        seed=seed,
        update=update,
        global_clipnorm=global_clipnorm,
    )


def step_of(layer, optimizer=None, features=FEATURES):
    """Returns a function of a `Batch` that trains on it and returns the pooled values."""
    optimizer = optimizer or keras.optimizers.SGD(0.1)
    optimizer.build(layer.trainable_variables)
    weighted = [name for name, feature in features.items() if feature[2]]

    @tf.function(reduce_retracing=True)
    def step(keys, splits, weights, gradients):
        def ragged(values, name):
            return tf.RaggedTensor.from_row_splits(values[name], splits[name], validate=False)

        with tf.GradientTape() as tape:
            outputs = layer(
                {name: ragged(keys, name) for name in features},
                weights={name: ragged(weights, name) for name in weighted},
                training=True,
            )
            pooled = {
                name: value.flat_values if isinstance(value, tf.RaggedTensor) else value
                for name, value in outputs.items()
            }
            loss = tf.add_n([tf.reduce_sum(pooled[n] * gradients[n]) for n in features])
        variables = layer.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return pooled

    def as_spec(array):
        return tf.TensorSpec([None, *array.shape[1:]], array.dtype)

    def train(batch):
        keys = {name: KEYS[positions] for name, positions in batch.positions.items()}
        arguments = (keys, batch.splits, batch.weights, batch.gradients)
        specs = tf.nest.map_structure(as_spec, arguments)
        return concrete(specs)(arguments)

    made = {}

    def concrete(specs):
        if not made:
            function = step.get_concrete_function(*specs)
            made["it"] = lambda arguments: function(*tf.nest.map_structure(tf.constant, arguments))
        return made["it"]

    return train


def gradients_of(batch, table, features=FEATURES):
    """Returns the summed gradients float64 [K, D] of a table, and which keys are in the batch."""
    total, touched = np.zeros((len(KEYS), DIM)), np.zeros(len(KEYS), bool)
    for name, (own, combiner, _) in features.items():
        if own != table:
            continue
        shares = batch.shares(name, combiner)
        rows = shares.T @ batch.gradients[name].astype(np.float64)
        np.add.at(total, batch.positions[name], rows)
        touched[batch.positions[name]] = True
    return total, touched


def pooled_of(batch, name, combiner, weights):
    """Returns the pooled values float64 [rows, D] of a feature, from weights [K, D]."""
    return batch.shares(name, combiner) @ weights[batch.positions[name]]


def first_weights(layer):
    """Returns the first values float32 [K, D] of every table's rows, by table."""
    fresh = type(layer).from_config(layer.get_config())
    return {name: t.lookup(KEYS, insert=True).copy() for name, t in fresh.tables.items()}


TYPES = {0: np.float32, 1: ml_dtypes.bfloat16, 2: np.float16}


def arrays_of(table):
    """Returns (keys [R], weights [R, D], vectors of state [V, R, D], scalars [S, R]), float32."""
    layout = table.layout
    rows = [(batch.keys, batch.lines) for batch in table.export_batches()]
    keys = np.concatenate([r[0] for r in rows]) if rows else np.zeros(0, np.int64)
    lines = np.concatenate([r[1] for r in rows]) if rows else np.zeros((0, table.line_bytes), "u1")

    def values(offset, count, kind):
        size = np.dtype(TYPES[kind]).itemsize
        part = np.ascontiguousarray(lines[:, offset : offset + count * size])
        return part.view(TYPES[kind]).astype(np.float32).reshape(len(keys), count)

    dim, vectors = layout["width"], layout["vectors"]
    state = values(layout["state_offset"], vectors * dim, layout["state_type"])
    return (
        keys,
        values(0, dim, layout["weights_type"]),
        state.reshape(len(keys), vectors, dim).transpose(1, 0, 2),
        values(layout["scalars_offset"], layout["scalars"], 0).T,
    )


def lines_of(table):
    """Returns (weights [D], vectors of state [V, D], scalars [S]) by key, as float32."""
    keys, weights, vectors, scalars = arrays_of(table)
    return {key: (weights[i], vectors[:, i], scalars[:, i]) for i, key in enumerate(keys.tolist())}
