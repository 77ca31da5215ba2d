"""Batches of keys for the tests of the planner, by what they are."""

from __future__ import annotations

import numpy as np
from unit.ops.planner.simulated_messages import Column

import hotrow


def zipf(rng, rows, count, skew=1.05):
    weights = np.cumsum(np.arange(1, rows + 1) ** -skew)
    return np.searchsorted(weights, rng.random(count) * weights[-1]).astype(np.int64)


def ragged(rng, rows, size, most, weighted=False):
    splits = np.concatenate([[0], np.cumsum(rng.integers(0, most + 1, size))]).astype(np.int64)
    weights = rng.random(splits[-1]).astype(np.float32) if weighted else None
    return Column(zipf(rng, rows, splits[-1]), splits, weights)


def one_hot(rng, size):
    return [(Column(zipf(rng, 300, size)), "sum")]


def distinct(rng, size):
    return [(Column(rng.permutation(10 * size)[:size] - size), "sum")]


def one_key(rng, size):
    return [(Column(np.full(size, -7)), "sum")]


def multi_hot(rng, size):
    return [(ragged(rng, 1000, size, 9), "mean")]


def weighted(rng, size):
    return [(ragged(rng, 1000, size, 5, weighted=True), "sqrtn")]


def without_combiner(rng, size):
    return [(ragged(rng, 100, size, 4), None)]


def shared(rng, size):
    return [
        (Column(zipf(rng, 50, size)), "sum"),
        (ragged(rng, 80, size, 6, weighted=True), "mean"),
        (ragged(rng, 80, size, 3), None),
    ]


def no_keys(rng, size):
    return [(Column(np.zeros(0, np.int64), np.zeros(size + 1, np.int64)), "sum")]


WORKLOADS = (
    one_hot,
    distinct,
    one_key,
    multi_hot,
    weighted,
    without_combiner,
    shared,
    no_keys,
)


def features_of(columns, dim, hash_owner=False, name="t"):
    """Returns the features that read the columns of a workload, all of one table."""
    table = hotrow.TableConfig(name, dim, hash_owner=hash_owner)
    return [hotrow.FeatureConfig(f"{name}{i}", table, c) for i, (_, c) in enumerate(columns)]


def batch_of(features, columns):
    return {f.name: column for f, (column, _) in zip(features, columns, strict=True)}
