"""A SavedModel that aborts the process that loads it, once a file is there."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf
from integration.serving.doubling_model import save_doubling

SIGNAL = "SIGABRT"


def save_lethal(base: Path, version: int, trigger: Path) -> Path:
    """Writes a version that ends the process while it is loaded; returns the base path.

    Its signature doubles `x`. TensorFlow's op `Abort` ends the process by LOG(FATAL), as a failed
    CHECK does.

    Args:
        base: of the versions.
        version: appears when it is whole.
        trigger: without this file, it loads and serves.
    """

    def abort_if_there() -> tf.Operation:
        is_there = tf.size(tf.io.matching_files(str(trigger))) > 0
        return tf.cond(is_there, _abort, lambda: tf.constant(1)).op

    unfinished = base / f".{version}"
    save_doubling(unfinished, abort_if_there)
    unfinished.rename(base / str(version))
    return base


def _abort() -> tf.Tensor:
    with tf.control_dependencies([tf.raw_ops.Abort(error_msg="of a test")]):
        return tf.identity(tf.constant(2))
