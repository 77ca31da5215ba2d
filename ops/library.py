"""The TensorFlow op library, loaded once in a process."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import hotrow
from hotrow import native
from hotrow.errors import FailedPreconditionError


@functools.cache
def load() -> Any:
    """Loads libhotrow_tf.so into TensorFlow and returns the module of its ops.

    Raises:
        ImportError: TensorFlow is not the version that the library was built for.
        FailedPreconditionError: the library does not exist, or TensorFlow refuses it.
    """
    import tensorflow as tf

    native.check_tensorflow_version(tf.__version__)
    path = Path(hotrow.__file__).with_name("libhotrow_tf.so")
    if not path.exists():
        raise FailedPreconditionError(f"{path} is not built; run `make setup`")
    try:
        return tf.load_op_library(str(path))
    except tf.errors.NotFoundError as err:
        raise FailedPreconditionError(f"{path} does not load: {err.message}") from err
