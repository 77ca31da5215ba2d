"""The tensors that a model takes, made from a batch.

`{"dense": float32 [B, n], "sparse": {column: keys}, "weights": {column: weights}}`, where keys are
int64 [B], or a ragged int64 [B, None] for a column with several keys a row, and weights, only of
columns that have them, are float32 of the same shape.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hotrow.config import RunConfig
from hotrow.trainer.data import Batch, Keys

ModelInputs = dict[str, Any]


def model_inputs(batch: Batch) -> ModelInputs:
    """Returns a batch as tensors on the host."""
    return {
        "dense": tf.constant(batch.dense),
        "sparse": {name: _keys(keys) for name, keys in batch.sparse.items()},
        "weights": {
            name: _like(keys, keys.weights)
            for name, keys in batch.sparse.items()
            if keys.weights is not None
        },
    }


def input_signature(config: RunConfig) -> ModelInputs:
    """Returns the type specs of the results of `model_inputs` for this configuration, any B."""
    libsvm = config.data.format == "libsvm"
    sparse, weights = {}, {}
    for column in config.features.sparse_columns():
        several = libsvm or column.lists or column.separator is not None
        sparse[column.name] = _spec(tf.int64, several)
        if libsvm and config.data.weights:
            weights[column.name] = _spec(tf.float32, several)
    columns = len(config.features.dense_columns())
    return {
        "dense": tf.TensorSpec([None, columns], tf.float32),
        "sparse": sparse,
        "weights": weights,
    }


def placeholder_inputs(config: RunConfig) -> ModelInputs:
    """Returns inputs of one row, zeros or empty, to build a model's weights."""

    def one_row(spec: Any) -> Any:
        if isinstance(spec, tf.RaggedTensorSpec):
            return tf.RaggedTensor.from_row_splits(
                tf.zeros([0], spec.dtype), tf.constant([0, 0], tf.int64)
            )
        return tf.zeros([1, *spec.shape[1:]], spec.dtype)

    signature = input_signature(config)
    return {
        "dense": one_row(signature["dense"]),
        "sparse": {name: one_row(spec) for name, spec in signature["sparse"].items()},
        "weights": {name: one_row(spec) for name, spec in signature["weights"].items()},
    }


def _spec(dtype: Any, several: bool) -> Any:
    if several:
        return tf.RaggedTensorSpec([None, None], dtype, 1, tf.int64)
    return tf.TensorSpec([None], dtype)


def _keys(keys: Keys) -> Any:
    return _like(keys, keys.keys)


def _like(keys: Keys, values: Any) -> Any:
    if keys.row_splits is None:
        return tf.constant(values)
    return tf.RaggedTensor.from_row_splits(
        tf.constant(values), tf.constant(keys.row_splits), validate=False
    )
