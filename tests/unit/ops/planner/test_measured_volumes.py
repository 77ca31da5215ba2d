"""What the layer sends on several ranks, threads of this process, is what the formulas say."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from unit.ops.planner.workloads import (
    batch_of,
    features_of,
    multi_hot,
    no_keys,
    one_hot,
    one_key,
    shared,
    weighted,
)

import hotrow
from hotrow.ops.planner import SCHEMES, STAGES, Sample, volume
from hotrow.ops.ranks import thread_ranks

DIM, SIZE, RANKS = 6, 50, 3


def inputs_of(column, first, last):
    """Returns keys and weights of samples [first, last), as the layer takes them."""
    if column.row_splits is None:
        return tf.constant(column.keys[first:last]), None
    at = slice(column.row_splits[first], column.row_splits[last])
    splits = column.row_splits[first : last + 1] - at.start
    ragged = [
        None if values is None else tf.RaggedTensor.from_row_splits(values[at], splits)
        for values in (column.keys, column.weights)
    ]
    return ragged[0], ragged[1]


def train(ranks, features, batch):
    """Makes a step with this rank's slice; returns the counts of all stages."""
    layer = hotrow.DistributedEmbedding(features, update="backward", ranks=ranks)
    first, last = (SIZE * rank // RANKS for rank in (ranks.rank, ranks.rank + 1))
    given = {name: inputs_of(column, first, last) for name, column in batch.items()}
    weights = {name: w for name, (_, w) in given.items() if w is not None}
    with tf.GradientTape() as tape:
        rows = layer({name: keys for name, (keys, _) in given.items()}, weights, training=True)
        loss = sum(tf.reduce_sum(getattr(r, "flat_values", r)) for r in rows.values())
    tape.gradient(loss, layer.trainable_variables)
    return ranks.stage_counts()


@pytest.mark.parametrize(
    "workload", [one_hot, one_key, multi_hot, weighted, shared, no_keys], ids=lambda w: w.__name__
)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_step_of_the_layer_sends_what_the_formulas_say(scheme, workload):
    columns = workload(np.random.default_rng(2), SIZE)
    features = features_of(columns, DIM)
    batch = batch_of(features, columns)
    table = dataclasses.replace(features[0].table, sharding=scheme)
    split = [dataclasses.replace(feature, table=table) for feature in features]
    group = thread_ranks(RANKS, timeout_seconds=60)
    with ThreadPoolExecutor(RANKS) as pool:
        counts = list(pool.map(lambda ranks: train(ranks, split, batch), group))
    for ranks in group:
        ranks.close()
    sample = Sample(features, RANKS)
    sample.add(batch, SIZE)
    expected = volume(scheme, sample.facts()["t"], DIM)
    for direction, side in (("sent", expected.sent), ("received", expected.received)):
        counted = [
            [count.get(stage, {}).get(f"bytes_{direction}", 0) for count in counts]
            for stage in STAGES
        ]
        np.testing.assert_array_equal(counted, side[0], direction)
