"""TensorFlow's switch for operations that give the same result in every run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tensorflow.python.framework import config as switch  # only enabling is public


@contextlib.contextmanager
def op_determinism(wanted: bool) -> Iterator[None]:
    """A context in which, if `wanted`, TensorFlow refuses ops that may differ between two runs.

    Our own ops sum in a fixed order with any number of threads. TensorFlow's sums on a CPU depend
    on the number of its threads, but not on their timing, except in a few ops that it then refuses.
    The switch applies to the whole process.
    """
    before = switch.is_op_determinism_enabled()
    if wanted and not before:
        switch.enable_op_determinism()
    try:
        yield
    finally:
        if wanted and not before:
            switch.disable_op_determinism()
