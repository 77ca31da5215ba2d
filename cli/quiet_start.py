"""Imports TensorFlow without the lines that its libraries print on every start."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterator

# absl prints these before it reads any level, so no setting of TensorFlow silences them.
_GREETING = re.compile(
    rb"^(WARNING: All log messages before absl::InitializeLog"
    rb"|I\d{4} .*"
    rb"|E\d{4} .*(cuda|cuInit|cuDNN|cuBLAS|cuFFT).*)"
)


def import_tensorflow_quietly(threads: int | None = None, *, open_devices: bool = True) -> None:
    """Imports TensorFlow and opens its devices without start-up lines; keeps other output.

    Does nothing special when the user set TF_CPP_MIN_LOG_LEVEL to 0 to see everything.

    Args:
        threads: number of threads for TensorFlow, unless TF_NUM_INTRAOP_THREADS or
            TF_NUM_INTEROP_THREADS is set; None: TensorFlow's default.
        open_devices: False leaves the visible devices to be set later.
    """
    if "tensorflow" in sys.modules or _shows_everything():
        _limit_threads(threads)
        return
    with quietly():
        # 2,800 imported modules leave no garbage; collecting would take an eighth of the time.
        gc.disable()
        try:
            import tensorflow as tf
        finally:
            gc.enable()
        _limit_threads(threads)
        if open_devices:
            tf.config.list_logical_devices()


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """A context without the lines that TensorFlow's libraries print when they open devices."""
    if _shows_everything():
        yield
        return
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            printed.seek(0)
            for line in printed:
                if not _GREETING.match(line):
                    os.write(2, line)


def _shows_everything() -> bool:
    return os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0"


def _limit_threads(threads: int | None) -> None:
    import tensorflow as tf

    if threads is None:
        return
    if "TF_NUM_INTRAOP_THREADS" not in os.environ:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    if "TF_NUM_INTEROP_THREADS" not in os.environ:
        tf.config.threading.set_inter_op_parallelism_threads(threads)
