"""A model that answers with its input: a signature for each data type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import tensorflow as tf
from tests.integration.serving.conftest import Server, served


def echo_server(folder: Path, kinds: Sequence[str]) -> Iterator[Server]:
    """Yields a server of the model `echo`; input `x` and output `y` may have any shape.

    Args:
        folder: for the model.
        kinds: names of data types, which are those of the signatures.
    """
    signatures = {
        name: tf.function(
            lambda x: {"y": tf.identity(x)},
            input_signature=[tf.TensorSpec(None, tf.as_dtype(name), "x")],
        )
        for name in kinds
    }
    module = tf.Module()
    module.functions = signatures
    base = folder / "echo"
    tf.saved_model.save(module, str(base / "1"), signatures=signatures)
    yield from served("echo", base)
