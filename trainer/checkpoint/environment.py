"""What beside configuration, seed and data the last bits of a step depend on."""

from __future__ import annotations

import os
from typing import Any

from hotrow.version import __version__


def environment() -> dict[str, Any]:
    """Returns versions, and the threads that TensorFlow cuts its sums for, as JSON values."""
    import keras  # here: `platform inspect` reads checkpoints without waiting for TensorFlow
    import tensorflow as tf

    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return {
        "hotrow": __version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "threads": threads or len(os.sched_getaffinity(0)),
    }


def differences(written: dict[str, Any]) -> str:
    """Returns in words how this process differs from the one that wrote; "" if it does not."""
    return ", ".join(
        f"{name} {written.get(name)} -> {value}"
        for name, value in environment().items()
        if written.get(name) != value
    )
