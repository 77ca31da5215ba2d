"""Batch normalisation by the mean and variance of the batch of all ranks."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from hotrow.ops.all_reduce import sum_of_ranks
from hotrow.trainer.models.part_of_batch import current_part


class BatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Keras' batch normalisation of [B, D], over B.

    Inside `part_of_batch`, mean and variance are those of the whole batch, as in one process, so
    the moving ones are the same on all ranks. All ranks call it together: ranks exchange two sums
    of [D] in the forward pass and two in the backward pass.
    """

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Returns float [B, D]."""
        part = current_part()
        if part is None or not training or not self.trainable:
            return super().call(inputs, training=training)
        rows = tf.cast(part.rows, inputs.dtype)

        def mean_over_ranks(values: Any, what: str) -> Any:
            own = tf.reduce_sum(values, axis=0)
            return sum_of_ranks(own, part.ranks, f"{what} of {self.name}") / rows

        mean = mean_over_ranks(inputs, "mean")
        # To first order the variance does not depend on the mean.
        apart = tf.math.squared_difference(inputs, tf.stop_gradient(mean))
        variance = mean_over_ranks(apart, "variance")
        for moving, new in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(moving * self.momentum + new * (1.0 - self.momentum))
        return tf.nn.batch_normalization(
            inputs, mean, variance, self.beta, self.gamma, self.epsilon
        )
