"""Converts dense columns of a file to inputs of the network, with stock TensorFlow ops.

Training and export run this one layer, so a served model gets the same inputs as in training.
Symbols: B rows, n dense columns.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from hotrow.config import DenseColumn

STANDARDIZE_ROWS = 100_000
"""Rows of the training file on which means and deviations are measured."""


class DensePreprocessor(keras.layers.Layer):  # type: ignore[misc]
    """Converts raw numbers, NaN where missing, to finite inputs of a network.

    For each column: the transform (`log` is sign(x) * log1p(|x|)), then the standardisation if it
    is configured, then 0 for a missing value. Input and output: float32 [B, n].
    """

    def __init__(self, columns: tuple[DenseColumn, ...], name: str = "dense_columns") -> None:
        """Makes the layer for `columns`, in the order of the input's columns."""
        super().__init__(name=name, trainable=False, dtype="float32")
        self.columns = columns
        self._log = np.array([column.transform == "log" for column in columns], bool)
        self._standardize = np.array([column.standardize for column in columns], bool)
        self.mean: Any = None
        self.scale: Any = None

    @property
    def needs_statistics(self) -> bool:
        """Whether `adapt` must be called before training."""
        return bool(self._standardize.any())

    def build(self, input_shape: Any) -> None:
        """Makes the weights `mean` and `scale`, float32 [n], if a column is standardised."""
        if self.needs_statistics and self.mean is None:
            shape = (len(self.columns),)
            self.mean = self.add_weight(
                name="mean", shape=shape, initializer="zeros", trainable=False
            )
            self.scale = self.add_weight(
                name="scale", shape=shape, initializer="ones", trainable=False
            )
        super().build(input_shape)

    def adapt(self, dense: npt.NDArray[np.float32]) -> None:
        """Measures mean and deviation of the standardised columns on rows of the training file.

        Args:
            dense: float32 [B, n] with NaN where missing. A column without any value keeps mean 0; a
                column with zero deviation keeps scale 1.
        """
        self.build(dense.shape)
        if not self.needs_statistics:
            return
        values = np.asarray(self._transformed(tf.constant(dense)), np.float64)
        present = ~np.isnan(values)
        count = np.maximum(present.sum(axis=0), 1)
        mean = np.where(present, values, 0).sum(axis=0) / count
        variance = np.where(present, (values - mean) ** 2, 0).sum(axis=0) / count
        deviation = np.sqrt(variance)
        usable = self._standardize & (deviation > 0)
        self.mean.assign(np.where(self._standardize, mean, 0))
        self.scale.assign(np.divide(1.0, deviation, out=np.ones_like(deviation), where=usable))

    def call(self, dense: Any) -> Any:
        """Returns float32 [B, n], finite where the input is finite or NaN."""
        values = self._transformed(dense)
        if self.needs_statistics:
            values = (values - self.mean) * self.scale
        return tf.where(tf.math.is_nan(values), tf.zeros_like(values), values)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the input's shape."""
        return input_shape

    def _transformed(self, dense: Any) -> Any:
        if not self._log.any():
            return dense
        log = tf.sign(dense) * tf.math.log1p(tf.abs(dense))
        return log if self._log.all() else tf.where(self._log, log, dense)
