"""Dropout on a rank's part of a batch, equal to that of one process on the whole batch."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from hotrow.trainer.models.part_of_batch import current_part


class Dropout(keras.layers.Dropout):  # type: ignore[misc]
    """Keras' dropout; inside `part_of_batch` it drops the units that one process would drop."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Returns float [B, any]."""
        part = current_part()
        if part is None or not training:
            return super().call(inputs, training=training)
        whole = tf.ones([part.rows, inputs.shape[-1]], inputs.dtype)
        kept = super().call(whole, training=training)
        return inputs * kept[part.first : part.first + tf.shape(inputs)[0]]
