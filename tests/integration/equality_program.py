"""Trains a layer of tables of several kinds with a dense part, and writes the results.

Run it on any number of ranks: `equality_program.py OUT.npz STEPS [all]`. By sharding and optimizer,
each optimizer with one sharding unless `all` is given: the losses, the dense weights, and the rows
of all ranks by key.
"""

from __future__ import annotations

import sys

import keras
import numpy as np
import tensorflow as tf

import hotrow
from hotrow.ops.dense_gradients import sum_over_ranks
from hotrow.ops.ranks import start_ranks
from hotrow.spec import OPTIMIZERS, SHARDINGS

# Of each optimizer: learning rates at which 300 steps are no chaos.
RATES = {"SGD": 0.1, "Momentum": 0.02, "Adagrad": 0.05, "RowwiseAdagrad": 0.05, "Adam": 0.005,
         "Ftrl": 0.05}  # fmt: skip
EMPTY, LONE = 7, 11  # steps: a batch without samples, and with one
EVEN = 13  # a step whose keys have one owner among 2 or 4 ranks


def batch_of(rng, step):
    """Returns the inputs and weights of a global batch, and its targets."""
    samples = {EMPTY: 0, LONE: 1}.get(step, 24)
    factor = 4 if step == EVEN else 1

    def keys(shape):
        skewed = np.minimum(rng.zipf(1.3, shape), 60) - 1
        return (skewed * factor).astype(np.int64)

    counts = rng.integers(0, 5, samples)
    splits = np.concatenate([[0], np.cumsum(counts)])
    ragged = keys(int(splits[-1]))
    weights = rng.uniform(0.5, 1.5, int(splits[-1])).astype(np.float32)
    inputs = {"one": keys(samples), "many": keys((samples, 3)), "none": keys(samples)}
    return samples, inputs, (ragged, splits, weights), rng.uniform(-1, 1, samples)


def part(values, begin, end):
    return {name: tf.constant(array[begin:end]) for name, array in values.items()}


def ragged_part(values, splits, begin, end):
    cut = values[splits[begin] : splits[end]]
    return tf.RaggedTensor.from_row_splits(cut, splits[begin : end + 1] - splits[begin])


def train(ranks, sharding, optimizer, steps):
    kind = type(optimizer).__name__
    common = {"optimizer": optimizer, "sharding": sharding, "initializer": hotrow.Normal(0.1)}
    shared = hotrow.TableConfig("shared", 6, combiner="sum", **common)
    wide = hotrow.TableConfig("ragged", 5, combiner="mean", hash_owner=True, **common)
    features = [
        hotrow.FeatureConfig("one", shared),
        hotrow.FeatureConfig("many", shared),
        hotrow.FeatureConfig("ragged", wide),
        hotrow.FeatureConfig("none", shared, None),
    ]
    layer = hotrow.DistributedEmbedding(features, seed=5, update="backward", ranks=ranks)
    dense = keras.Variable(np.linspace(-0.5, 0.5, 23, dtype=np.float32).reshape(23, 1))
    adam = keras.optimizers.Adam(0.003)
    adam.build([layer.anchor, dense])

    @tf.function(reduce_retracing=True)
    def step(inputs, weights, targets, rows):
        with tf.GradientTape() as tape:
            found = layer(inputs, weights={"ragged": weights}, training=True)
            x = tf.concat([found[name] for name in ("one", "many", "ragged", "none")], axis=1)
            losses = tf.square(tf.squeeze(tf.tanh(x @ dense), 1) - targets)
            loss = tf.reduce_sum(losses) / rows
        anchor, gradient = tape.gradient(loss, [layer.anchor, dense])
        (gradient,) = sum_over_ranks([gradient], ranks)
        adam.apply([anchor, gradient], [layer.anchor, dense])
        return loss

    rng = np.random.default_rng(17)
    losses = []
    for number in range(steps):
        samples, plain, (keys, splits, weights), targets = batch_of(rng, number)
        begin = samples * ranks.rank // ranks.size
        end = samples * (ranks.rank + 1) // ranks.size
        inputs = part(plain, begin, end)
        inputs["ragged"] = ragged_part(keys, splits, begin, end)
        given = ragged_part(weights, splits, begin, end)
        target = tf.constant(targets[begin:end], tf.float32)
        loss = step(inputs, given, target, tf.constant(max(samples, 1), tf.float32))
        losses.append(float(ranks.all_reduce(np.array([loss.numpy()], np.float64), "loss")[0]))
    results = {"losses": np.array(losses), "dense": dense.numpy()}
    for name, table in layer.tables.items():
        keys, rows = whole_rows(table, ranks)
        results[f"{name}/keys"], results[f"{name}/rows"] = keys, rows
    return {f"{sharding}/{kind}/{name}": value for name, value in results.items()}


def whole_rows(table, ranks):
    """Returns the keys of a table, sorted, and their whole rows, of all ranks."""
    batches = list(table.export_batches()) if table.size else []
    keys = np.concatenate([np.zeros(0, np.int64), *(b.keys for b in batches)])
    width = len(table.columns)
    rows = np.concatenate([np.zeros((0, width), np.float32), *(b.weights for b in batches)])
    order = np.argsort(keys)
    if ranks.size == 1 or table.config.sharding == "replicated":
        return keys[order], rows[order]
    all_keys = ranks.all_gather(keys[order], "keys")
    if table.config.sharding == "column":
        parts = ranks.all_gather(np.ascontiguousarray(rows[order].T), "columns")
        return all_keys[0], np.concatenate(parts).T
    joined = np.concatenate(all_keys)
    all_rows = np.concatenate(ranks.all_gather(rows[order], "rows"))
    order = np.argsort(joined)
    return joined[order], all_rows[order]


def main() -> None:
    out, steps, whole = sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["all"]
    with start_ranks(120.0) as ranks:
        results = {}
        for number, kind in enumerate(OPTIMIZERS):
            shardings = SHARDINGS if whole else (SHARDINGS[number % len(SHARDINGS)],)
            for sharding in shardings if ranks.size > 1 else SHARDINGS[:1]:
                results |= train(ranks, sharding, kind(RATES[kind.__name__]), steps)
        if ranks.is_first:
            np.savez(out, **results)


main()
