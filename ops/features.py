"""Inputs of the layer, flattened to what the ops take.

B samples, N keys, D weights a row, k keys a sample in a dense matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from hotrow.errors import InvalidArgumentError


@dataclass(frozen=True)
class FlatFeature:
    """A feature as the ops take it.

    Attributes:
        keys: int64 [N].
        row_splits: int64 [B + 1], or [0]: sample b has key b alone.
        weights: float32 [N], or [0]: all are 1.
        shape: gives the pooled values, [B, D] or [N, D], their final shape.
    """

    keys: tf.Tensor
    row_splits: tf.Tensor
    weights: tf.Tensor
    shape: Callable[[tf.Tensor], Any]


# Whole numbers below this have no neighbour that rounds to them.
_EXACT = {tf.float32: 2.0**24, tf.float64: 2.0**53}


def _as_keys(name: str, values: tf.Tensor) -> tf.Tensor:
    if values.dtype in _EXACT:
        # Keras traces the default signature of a subclassed model with floats.
        limit = tf.constant(_EXACT[values.dtype], values.dtype)
        exact = tf.reduce_all((values == tf.floor(values)) & (tf.abs(values) < limit))
        message = f"feature {name!r}: keys of type {values.dtype.name} that are not exact integers"
        with tf.control_dependencies([tf.debugging.Assert(exact, [message])]):
            return tf.cast(values, tf.int64)
    if values.dtype not in (tf.int64, tf.int32):
        raise InvalidArgumentError(
            f"feature {name!r}: keys of type {values.dtype.name}; must be int64 or int32 "
            "(strings become keys with hotrow.ops.strings.fingerprint_keys)"
        )
    return tf.cast(values, tf.int64)


def _flat_weights(name: str, weights: Any, kind: type, flat: Callable[[Any], tf.Tensor]) -> Any:
    if weights is None:
        return tf.constant([], tf.float32)
    if not isinstance(weights, kind):
        raise InvalidArgumentError(
            f"feature {name!r}: weights are a {type(weights).__name__}; "
            f"must be like the keys, a {kind.__name__}"
        )
    # Keys are data, and so are their weights: no gradient flows to them.
    return tf.stop_gradient(tf.cast(flat(weights), tf.float32))


def flatten(name: str, inputs: Any, weights: Any, combiner: str | None) -> FlatFeature:
    """Returns the flat form of a dense [B] or [B, k], ragged or sparse [B, None] feature.

    Raises:
        InvalidArgumentError: keys that are not integers, a rank other than 1 or 2, weights of
            another kind than the keys, a sparse input without combiner.
    """
    if isinstance(inputs, tf.RaggedTensor):
        return _flatten_ragged(name, inputs, weights, combiner)
    if isinstance(inputs, tf.SparseTensor):
        if combiner is None:
            raise InvalidArgumentError(
                f"feature {name!r}: a sparse input needs a combiner (sum, mean or sqrtn); "
                "give a ragged one to get one row a key"
            )
        flat_weights = _flat_weights(name, weights, tf.SparseTensor, lambda w: w.values)
        ragged = tf.RaggedTensor.from_value_rowids(
            _as_keys(name, inputs.values), inputs.indices[:, 0], inputs.dense_shape[0]
        )
        return FlatFeature(ragged.values, ragged.row_splits, flat_weights, lambda rows: rows)
    return _flatten_dense(name, tf.convert_to_tensor(inputs), weights, combiner)


def _flatten_ragged(
    name: str, inputs: tf.RaggedTensor, weights: Any, combiner: str | None
) -> FlatFeature:
    if inputs.ragged_rank != 1 or inputs.flat_values.shape.rank != 1:
        raise InvalidArgumentError(
            f"feature {name!r}: a ragged input of shape {inputs.shape}; must be [B, None]"
        )
    splits = tf.cast(inputs.row_splits, tf.int64)
    flat_weights = _flat_weights(name, weights, tf.RaggedTensor, lambda w: w.flat_values)
    if weights is not None and weights.row_splits is not inputs.row_splits:
        same = tf.reduce_all(tf.equal(tf.cast(weights.row_splits, tf.int64), splits))
        message = f"feature {name!r}: weights with other row_splits than the keys"
        with tf.control_dependencies([tf.debugging.Assert(same, [message])]):
            flat_weights = tf.identity(flat_weights)

    def shape(rows: tf.Tensor) -> Any:
        return inputs.with_flat_values(rows) if combiner is None else rows

    return FlatFeature(_as_keys(name, inputs.flat_values), splits, flat_weights, shape)


def _flatten_dense(name: str, inputs: tf.Tensor, weights: Any, combiner: str | None) -> FlatFeature:
    keys = _as_keys(name, inputs)
    if keys.shape.rank not in (1, 2):
        raise InvalidArgumentError(
            f"feature {name!r}: a dense input of shape {keys.shape}; must be [B] or [B, k]"
        )
    if weights is not None:
        weights = tf.convert_to_tensor(weights)
        if not weights.shape.is_compatible_with(keys.shape):
            raise InvalidArgumentError(
                f"feature {name!r}: weights of shape {weights.shape}; must be {keys.shape}, like "
                "the keys"
            )
    flat_weights = _flat_weights(name, weights, tf.Tensor, lambda w: tf.reshape(w, [-1]))
    none = tf.constant([], tf.int64)
    if keys.shape.rank == 1:
        return FlatFeature(keys, none, flat_weights, lambda rows: rows)
    batch, width = tf.shape(keys, tf.int64)[0], tf.shape(keys, tf.int64)[1]
    flat = tf.reshape(keys, [-1])
    if combiner is not None:
        return FlatFeature(flat, tf.range(batch + 1) * width, flat_weights, lambda rows: rows)

    def shape(rows: tf.Tensor) -> tf.Tensor:
        return tf.reshape(rows, tf.stack([batch, width, tf.shape(rows, tf.int64)[1]]))

    static = keys.shape

    def shape_with_static(rows: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(shape(rows), [static[0], static[1], rows.shape[1]])

    return FlatFeature(flat, none, flat_weights, shape_with_static)
