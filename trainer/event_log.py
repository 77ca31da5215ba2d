"""Scalars for TensorBoard.

TensorFlow's own `tf.summary.scalar` needs the package tensorboard. A run does not need it; only
viewing the events does. The events are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf


class EventLog:
    """Writes scalars to an event file; creates its directory with the first one."""

    def __init__(self, directory: Path) -> None:
        """Opens a new event file."""
        self._writer = tf.summary.create_file_writer(str(directory))
        # TensorBoard's scalars plugin looks for this (data_class 1: scalar).
        self._metadata = tf.compat.v1.SummaryMetadata(
            plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"),
            data_class=1,
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes `values` by tag, e.g. `valid/auc`, for a step, and flushes the file."""
        with self._writer.as_default():
            for tag, value in values.items():
                scalar = tf.constant(value, tf.float32)
                tf.summary.write(tag, scalar, step=step, metadata=self._metadata)
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()
