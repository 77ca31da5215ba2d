"""Inputs of the layer, flattened to the form of the ops.

B samples, N keys, D weights a row, k keys a sample in a dense matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from hotrow.errors import InvalidArgumentError
from hotrow.ops.strings import fingerprint_keys
from hotrow.spec import FeatureConfig


@dataclass(frozen=True)
class FlatFeature:
    """A feature in the form of the ops.

    Attributes:
        keys: int64 [N].
        row_splits: int64 [B + 1], or [0]: sample b has key b alone.
        weights: float32 [N], or [0]: all are 1.
        shape: reshapes the pooled values, [B, D] or [N, D], to the shape of the output.
    """

    keys: tf.Tensor
    row_splits: tf.Tensor
    weights: tf.Tensor
    shape: Callable[[tf.Tensor], Any]


# From this magnitude on, several integers round to one float.
_EXACT = {tf.float32: 2.0**24, tf.float64: 2.0**53}


def as_keys(feature: FeatureConfig, values: tf.Tensor) -> tf.Tensor:
    """Returns int64 keys for values of any shape: integers, exact floats or hashed strings.

    Raises:
        InvalidArgumentError: values of another type, a float that is not an exact integer.
    """
    if values.dtype == tf.string:
        return fingerprint_keys(feature.table.name.encode() + b"\x1f", values)
    if values.dtype in _EXACT:
        return _exact_keys(feature.name, values)
    if values.dtype not in (tf.int64, tf.int32):
        raise InvalidArgumentError(
            f"feature {feature.name!r}: keys of type {values.dtype.name}; must be int64, int32 or "
            "string"
        )
    return tf.cast(values, tf.int64)


def _exact_keys(name: str, values: tf.Tensor) -> tf.Tensor:
    # Keras traces the default signature of a subclassed model with floats.
    limit = tf.constant(_EXACT[values.dtype], values.dtype)
    exact = (values == tf.floor(values)) & (tf.abs(values) < limit)
    bad = tf.boolean_mask(values, tf.logical_not(exact))
    message = (
        f"feature {name!r}: keys of type {values.dtype.name} that are not exact integers below "
        f"2^{24 if values.dtype == tf.float32 else 53}; give int64, int32 or strings; the first is"
    )
    if tf.executing_eagerly():
        if len(bad):
            raise InvalidArgumentError(f"{message} {bad[0].numpy()}")
        return tf.cast(values, tf.int64)
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(exact), [message, bad[:1]])]):
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


def _equal(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Returns whether two tensors have the same shape and values."""
    return tf.cond(
        tf.reduce_all(tf.equal(tf.shape(one), tf.shape(other))),
        lambda: tf.reduce_all(tf.equal(one, other)),
        lambda: False,
    )


def flatten(feature: FeatureConfig, inputs: Any, weights: Any) -> FlatFeature:
    """Returns the flat form of a dense [B] or [B, k], ragged or sparse [B, None] feature.

    Keys that are the feature's `mask_value` are left out, with their weights.

    Raises:
        InvalidArgumentError: keys that are not integers or strings, a rank other than 1 or 2,
            weights whose kind differs from that of the keys, a sparse input without combiner, or a
            mask whose type differs from that of the keys. When the op runs: weights with other row
            splits or indices than the keys (TensorFlow's error of that name).
    """
    if isinstance(inputs, tf.RaggedTensor):
        return _flatten_ragged(feature, inputs, weights)
    if isinstance(inputs, tf.SparseTensor):
        if feature.resolved_combiner is None:
            raise InvalidArgumentError(
                f"feature {feature.name!r}: a sparse input needs a combiner (sum, mean or sqrtn); "
                "give a ragged one to get one row a key"
            )
        flat_weights = _flat_weights(feature.name, weights, tf.SparseTensor, lambda w: w.values)
        if weights is not None and weights.indices is not inputs.indices:
            same = _equal(weights.indices, inputs.indices)
            message = (
                f"feature {feature.name!r}: weights with other indices than the keys; give both "
                "the same indices, in the same order (tf.sparse.reorder)"
            )
            with tf.control_dependencies([tf.debugging.Assert(same, [message])]):
                flat_weights = tf.identity(flat_weights)
        ragged = tf.RaggedTensor.from_value_rowids(
            inputs.values, inputs.indices[:, 0], inputs.dense_shape[0]
        )
        return _pooled(feature, ragged.values, ragged.row_splits, flat_weights)
    return _flatten_dense(feature, tf.convert_to_tensor(inputs), weights)


def _pooled(
    feature: FeatureConfig, values: tf.Tensor, splits: tf.Tensor, weights: tf.Tensor
) -> FlatFeature:
    """Returns a pooled feature without its masked keys; values [N], splits int64 [B + 1]."""
    mask = feature.mask_value
    if mask is not None:
        if isinstance(mask, str) != (values.dtype == tf.string):
            raise InvalidArgumentError(
                f"feature {feature.name!r}: mask_value is {mask!r} and keys are of type "
                f"{values.dtype.name}; give a mask of the same kind"
            )
        if isinstance(mask, int):
            values = as_keys(feature, values)
        kept = tf.not_equal(values, tf.constant(mask, values.dtype))
        before = tf.concat([[0], tf.cumsum(tf.cast(kept, tf.int64))], axis=0)
        splits = tf.gather(before, splits)
        values = tf.boolean_mask(values, kept)
        if weights.shape[0] != 0:
            weights = tf.boolean_mask(weights, kept)
    return FlatFeature(as_keys(feature, values), splits, weights, lambda rows: rows)


def _flatten_ragged(feature: FeatureConfig, inputs: tf.RaggedTensor, weights: Any) -> FlatFeature:
    name = feature.name
    if inputs.ragged_rank != 1 or inputs.flat_values.shape.rank != 1:
        raise InvalidArgumentError(
            f"feature {name!r}: a ragged input of shape {inputs.shape}; must be [B, None]"
        )
    splits = tf.cast(inputs.row_splits, tf.int64)
    flat_weights = _flat_weights(name, weights, tf.RaggedTensor, lambda w: w.flat_values)
    if weights is not None and weights.row_splits is not inputs.row_splits:
        same = _equal(tf.cast(weights.row_splits, tf.int64), splits)
        message = f"feature {name!r}: weights with other row_splits than the keys"
        with tf.control_dependencies([tf.debugging.Assert(same, [message])]):
            flat_weights = tf.identity(flat_weights)
    if feature.resolved_combiner is not None:
        return _pooled(feature, inputs.flat_values, splits, flat_weights)
    keys = as_keys(feature, inputs.flat_values)
    return FlatFeature(keys, splits, flat_weights, inputs.with_flat_values)


def _flatten_dense(feature: FeatureConfig, inputs: tf.Tensor, weights: Any) -> FlatFeature:
    name = feature.name
    if inputs.shape.rank not in (1, 2):
        raise InvalidArgumentError(
            f"feature {name!r}: a dense input of shape {inputs.shape}; must be [B] or [B, k]"
        )
    if weights is not None:
        weights = tf.convert_to_tensor(weights)
        if not weights.shape.is_compatible_with(inputs.shape):
            raise InvalidArgumentError(
                f"feature {name!r}: weights of shape {weights.shape}; must be {inputs.shape}, like "
                "the keys"
            )
    flat_weights = _flat_weights(name, weights, tf.Tensor, lambda w: tf.reshape(w, [-1]))
    none = tf.constant([], tf.int64)
    if inputs.shape.rank == 1 and feature.mask_value is None:
        return FlatFeature(as_keys(feature, inputs), none, flat_weights, lambda rows: rows)
    batch = tf.shape(inputs, tf.int64)[0]
    width = tf.shape(inputs, tf.int64)[1] if inputs.shape.rank == 2 else tf.constant(1, tf.int64)
    flat = tf.reshape(inputs, [-1])
    if feature.resolved_combiner is not None:
        return _pooled(feature, flat, tf.range(batch + 1) * width, flat_weights)

    static = inputs.shape

    def shape(rows: tf.Tensor) -> tf.Tensor:
        shaped = tf.reshape(rows, tf.stack([batch, width, tf.shape(rows, tf.int64)[1]]))
        return tf.ensure_shape(shaped, [static[0], static[1], rows.shape[1]])

    return FlatFeature(as_keys(feature, flat), none, flat_weights, shape)
