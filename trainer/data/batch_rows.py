"""Cuts and joins encoded batches, and selects their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotrow.trainer.data.batch import Batch, Ints, Keys


def cut_batch(batch: Batch, start: int, stop: int) -> Batch:
    """Returns rows `start` to `stop` of a batch, as views of it."""
    return Batch(
        dense=batch.dense[start:stop],
        sparse={name: _cut_keys(keys, start, stop) for name, keys in batch.sparse.items()},
        labels=None if batch.labels is None else batch.labels[start:stop],
        weights=None if batch.weights is None else batch.weights[start:stop],
    )


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Returns the rows of one or more batches, all with the same columns, in order."""
    first = batches[0]
    if len(batches) == 1:
        return first
    labels = [batch.labels for batch in batches if batch.labels is not None]
    weights = [batch.weights for batch in batches if batch.weights is not None]
    return Batch(
        dense=np.concatenate([batch.dense for batch in batches]),
        sparse={name: _join_keys([b.sparse[name] for b in batches]) for name in first.sparse},
        labels=np.concatenate(labels) if labels else None,
        weights=np.concatenate(weights) if weights else None,
    )


def take_rows(batch: Batch, rows: Ints) -> Batch:
    """Returns the given rows, by number int64 [M], in that order."""
    return Batch(
        dense=batch.dense[rows],
        sparse={name: _take_keys(keys, rows) for name, keys in batch.sparse.items()},
        labels=None if batch.labels is None else batch.labels[rows],
        weights=None if batch.weights is None else batch.weights[rows],
    )


def _cut_keys(keys: Keys, start: int, stop: int) -> Keys:
    if keys.row_splits is None:
        weights = None if keys.weights is None else keys.weights[start:stop]
        return Keys(keys.keys[start:stop], None, weights)
    first, last = keys.row_splits[start], keys.row_splits[stop]
    return Keys(
        keys.keys[first:last],
        keys.row_splits[start : stop + 1] - first,
        None if keys.weights is None else keys.weights[first:last],
    )


def _join_keys(parts: Sequence[Keys]) -> Keys:
    weights = [part.weights for part in parts if part.weights is not None]
    lengths = [np.diff(part.row_splits) for part in parts if part.row_splits is not None]
    splits = np.concatenate([[0], *lengths]).cumsum() if lengths else None
    return Keys(
        np.concatenate([part.keys for part in parts]),
        None if splits is None else splits.astype(np.int64),
        np.concatenate(weights) if weights else None,
    )


def _take_keys(keys: Keys, rows: Ints) -> Keys:
    if keys.row_splits is None:
        return Keys(keys.keys[rows], None, None if keys.weights is None else keys.weights[rows])
    starts = keys.row_splits[rows]
    lengths = keys.row_splits[rows + 1] - starts
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    # Position j of the output belongs to row i with splits[i] <= j < splits[i + 1].
    positions = np.arange(splits[-1]) + np.repeat(starts - splits[:-1], lengths)
    return Keys(
        keys.keys[positions], splits, None if keys.weights is None else keys.weights[positions]
    )
