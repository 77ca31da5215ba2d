"""TensorFlow's switch for operations that give the same result in each run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tensorflow.python.framework import config as switch  # only enabling is public


@contextlib.contextmanager
def op_determinism(wanted: bool) -> Iterator[None]:
    """A context in which TensorFlow refuses what may differ between two runs, if `wanted`.

    Our own ops sum in a fixed order whatever the threads. TensorFlow's sums on a CPU depend on
    the number of its threads, but not on their timing, except in a few ops that it then refuses.
    The switch is one of the whole process.
    """
    before = switch.is_op_determinism_enabled()
    if wanted and not before:
        switch.enable_op_determinism()
    try:
        yield
    finally:
        if wanted and not before:
            switch.disable_op_determinism()
