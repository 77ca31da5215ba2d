"""Functions of several threads, traced one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_TRACING = threading.Lock()


def traced(step: Callable[..., Any], *arguments: Any) -> Any:
    """Returns `tf.function(step)` after it was traced for these arguments.

    Threads trace in turn: TensorFlow has crashed while three of them traced at once.
    """
    compiled = tf.function(step)
    with _TRACING:
        compiled.get_concrete_function(*arguments)
    return compiled
