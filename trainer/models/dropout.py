"""Dropout of the part of a batch that a rank has, as one process would drop of the whole batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf

_PLACE: ContextVar[tuple[Any, Any] | None] = ContextVar("part_of_batch", default=None)


@contextlib.contextmanager
def part_of_batch(first: Any, rows: Any) -> Iterator[None]:
    """A context in which dropout layers see a part of a batch.

    Args:
        first: int32 scalar, where in the batch of all ranks the part begins.
        rows: int32 scalar, rows of that batch.
    """
    token = _PLACE.set((first, rows))
    try:
        yield
    finally:
        _PLACE.reset(token)


class Dropout(keras.layers.Dropout):  # type: ignore[misc]
    """Keras' dropout. Inside of `part_of_batch` it drops what one process would drop."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Returns float [B, any]."""
        place = _PLACE.get()
        if place is None or not training:
            return super().call(inputs, training=training)
        first, rows = place
        kept = super().call(tf.ones([rows, inputs.shape[-1]], inputs.dtype), training=training)
        return inputs * kept[first : first + tf.shape(inputs)[0]]
