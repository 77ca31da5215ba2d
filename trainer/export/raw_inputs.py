"""Converts the columns of a request to the inputs of a model, inside the exported graph.

The rules are those of `hotrow.trainer.data.encode`, written with stock TensorFlow ops. B rows,
N keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from hotrow.config import MISSING_BUCKET, RunConfig, SparseColumn
from hotrow.ops.strings import fingerprint_keys
from hotrow.trainer.data.columns import MISSING_KEY
from hotrow.trainer.model_inputs import ModelInputs

SPLITS = "row_splits"
WEIGHTS = "weights"


@dataclass(frozen=True)
class RaggedColumn:
    """A column with any number of values a row; a request sends it as flat tensors.

    Attributes:
        name: name of the input with [N] values: int64 keys, or strings that are hashed.
        splits: name of the input with int64 [B + 1] row splits.
        weights: name of the input with float32 [N] weights; None: every key weighs 1.
        dtype: type of the values.
    """

    name: str
    splits: str
    weights: str | None
    dtype: tf.DType


class RawInputs:
    """The inputs of the signatures of a configuration, and their conversion."""

    def __init__(self, config: RunConfig) -> None:
        """Derives the inputs from the columns of `config`."""
        self._dense = config.features.dense_columns()
        self._sparse = config.features.sparse_columns()
        self._ragged = {
            column.name: RaggedColumn(
                column.name,
                f"{column.name}_{SPLITS}",
                f"{column.name}_{WEIGHTS}" if config.data.weights else None,
                tf.string if column.lists and column.hash else tf.int64,
            )
            for column in self._sparse
            if config.data.format == "libsvm" or column.lists
        }

    def specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the named inputs of Predict.

        float32 [B] (NaN: missing) for dense and bucketized columns; string [B] ("": missing) for
        hashed and multi-valued ones; int64 [B] for integer keys; for ragged ones int64 [N] keys or
        string [N] ("": dropped), `<column>_row_splits` int64 [B + 1] and `<column>_weights`
        float32 [N].
        """
        specs = {
            column.name: tf.TensorSpec([None], tf.float32, column.name) for column in self._dense
        }
        for column in self._sparse:
            ragged = self._ragged.get(column.name)
            specs[column.name] = tf.TensorSpec([None], _dtype(column), column.name)
            if ragged is not None:
                specs[column.name] = tf.TensorSpec([None], ragged.dtype, column.name)
                specs[ragged.splits] = tf.TensorSpec([None], tf.int64, ragged.splits)
                if ragged.weights:
                    specs[ragged.weights] = tf.TensorSpec([None], tf.float32, ragged.weights)
        return specs

    def parse_examples(self, serialized: tf.Tensor) -> dict[str, Any]:
        """Returns the named inputs of string [B] serialized tf.Examples; absent means missing.

        A ragged column is a feature with any number of int64 or bytes values, its weights the
        float feature `<column>_weights`.
        """
        missing = {tf.float32: float("nan"), tf.string: "", tf.int64: MISSING_KEY}
        features: dict[str, Any] = {}
        for name, spec in self.specs().items():
            features[name] = tf.io.FixedLenFeature([], spec.dtype, missing[spec.dtype])
        for column in self._ragged.values():
            del features[column.splits]
            features[column.name] = tf.io.RaggedFeature(column.dtype, row_splits_dtype=tf.int64)
            if column.weights:
                features[column.weights] = tf.io.RaggedFeature(
                    tf.float32, row_splits_dtype=tf.int64
                )
        parsed = tf.io.parse_example(serialized, features)
        for column in self._ragged.values():
            keys = parsed[column.name]
            parsed[column.name], parsed[column.splits] = keys.flat_values, keys.row_splits
            if column.weights:
                parsed[column.weights] = parsed[column.weights].flat_values
        return dict(parsed)

    def model_inputs(self, named: dict[str, Any]) -> ModelInputs:
        """Returns the same inputs that `hotrow.trainer.model_inputs` makes of these rows."""
        sparse: dict[str, Any] = {}
        weights: dict[str, Any] = {}
        for column in self._sparse:
            ragged = self._ragged.get(column.name)
            if ragged is None:
                sparse[column.name] = _keys(column, named[column.name])
                continue
            splits = named[ragged.splits]
            values = tf.RaggedTensor.from_row_splits(named[column.name], splits)
            if ragged.dtype == tf.string:
                values = _hashed_parts(column, values)
            sparse[column.name] = values
            if ragged.weights:
                weights[column.name] = tf.RaggedTensor.from_row_splits(
                    named[ragged.weights], splits
                )
        return {"dense": self._matrix(named), "sparse": sparse, "weights": weights}

    def _matrix(self, named: dict[str, Any]) -> tf.Tensor:
        if self._dense:
            return tf.stack([named[column.name] for column in self._dense], axis=1)
        first = self._sparse[0].name
        if first in self._ragged:
            rows = tf.shape(named[self._ragged[first].splits])[0] - 1
        else:
            rows = tf.shape(named[first])[0]
        return tf.zeros([rows, 0], tf.float32)


def _dtype(column: SparseColumn) -> tf.DType:
    if column.boundaries is not None:
        return tf.float32
    return tf.string if column.hash or column.separator is not None else tf.int64


def _keys(column: SparseColumn, values: tf.Tensor) -> Any:
    if column.boundaries is not None:
        bounds = tf.constant(column.boundaries, tf.float32)
        # Denormals are 0 as in the reader: some threads of TensorFlow flush them, others do not.
        flushed = tf.where(tf.abs(values) < 2.0**-126, 0.0, values)
        bucket = tf.searchsorted(bounds, flushed, side="right", out_type=tf.int64)
        missing = tf.constant(MISSING_BUCKET, tf.int64)
        return tf.where(tf.math.is_nan(values), missing, bucket)
    if column.separator is not None:
        if not column.hash:
            values = tf.strings.regex_replace(values, " ", "")
        parts = tf.strings.split(values, column.separator)
        if column.hash:
            return _hashed_parts(column, parts)
        parts = tf.ragged.boolean_mask(parts, tf.not_equal(parts, ""))
        parts = parts.with_row_splits_dtype(tf.int64)
        return parts.with_flat_values(tf.strings.to_number(parts.flat_values, tf.int64))
    return fingerprint_keys(column.key_prefix, values) if column.hash else values


def _hashed_parts(column: SparseColumn, parts: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns the keys of any number of strings a row; empty strings are dropped."""
    parts = tf.ragged.boolean_mask(parts, tf.not_equal(parts, ""))
    parts = parts.with_row_splits_dtype(tf.int64)
    return parts.with_flat_values(fingerprint_keys(column.key_prefix, parts.flat_values))
