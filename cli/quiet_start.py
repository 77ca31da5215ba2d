"""Imports TensorFlow without the lines that its libraries print on every start."""

from __future__ import annotations

import os
import re
import sys
import tempfile

# absl prints these before it reads any level, so no setting of TensorFlow silences them.
_GREETING = re.compile(
    rb"^(WARNING: All log messages before absl::InitializeLog"
    rb"|I\d{4} .*"
    rb"|E\d{4} .*(cuda|cuInit|cuDNN|cuBLAS|cuFFT).*)"
)


def import_tensorflow_quietly() -> None:
    """Imports TensorFlow and opens its devices; what else is printed meanwhile is kept.

    Does nothing special when the user set TF_CPP_MIN_LOG_LEVEL to 0 to see everything.
    """
    if "tensorflow" in sys.modules or os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0":
        import tensorflow  # noqa: F401

        return
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 2)
        try:
            import tensorflow as tf

            tf.config.list_logical_devices()
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            printed.seek(0)
            for line in printed:
                if not _GREETING.match(line):
                    os.write(2, line)
