"""The linear model over all columns: all of logistic regression, half of Wide & Deep."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


class LinearPart(keras.layers.Layer):  # type: ignore[misc]
    """Sum of the rows of width 1, weighted dense columns, and a bias.

    The dense weights and the bias start at zero, as do the tables of width 1.
    """

    def __init__(self, dense_columns: int, l2: float, name: str = "linear") -> None:
        """Makes the kernel [dense_columns, 1], with an `l2` penalty on its square, and the bias."""
        super().__init__(name=name)
        self.kernel = self.add_weight(
            name="kernel",
            shape=(dense_columns, 1),
            initializer="zeros",
            regularizer=keras.regularizers.L2(l2) if l2 else None,
        )
        self.bias = self.add_weight(name="bias", shape=(1,), initializer="zeros")

    def call(self, dense: Any, wide: list[Any]) -> Any:
        """Returns logits, float32 [B, 1].

        Args:
            dense: float32 [B, dense_columns].
            wide: rows of width 1, float32 [B, 1] each.
        """
        logits = tf.matmul(dense, self.kernel) + self.bias
        return tf.add_n([logits, *wide])
