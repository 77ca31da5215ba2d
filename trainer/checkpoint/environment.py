"""The environment that the last bits of a step depend on, besides configuration, seed and data."""

from __future__ import annotations

import os
from typing import Any

from hotrow.version import __version__


def environment(ranks: int = 1) -> dict[str, Any]:
    """Returns versions, TensorFlow's thread counts, which set how it splits sums, and the ranks."""
    import keras  # here: `platform inspect` reads checkpoints without waiting for TensorFlow
    import tensorflow as tf

    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return {
        "hotrow": __version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "threads": threads or len(os.sched_getaffinity(0)),
        "ranks": ranks,
    }


def differences(written: dict[str, Any], ranks: int = 1) -> str:
    """Returns a text on how this process differs from the one that wrote; "" if it does not."""
    written = {"ranks": 1, **written}  # older checkpoints are from one rank
    return ", ".join(
        f"{name} {written.get(name)} -> {value}"
        for name, value in environment(ranks).items()
        if written.get(name) != value
    )
