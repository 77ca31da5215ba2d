"""SavedModels whose load does something else first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf


def save_doubling(folder: Path, first: Callable[[], tf.Operation]) -> None:
    """Writes a SavedModel whose signature doubles `x` [B] float32.

    Args:
        folder: does not exist.
        first: makes the op that its load runs.
    """
    v1 = tf.compat.v1
    graph = tf.Graph()
    builder = v1.saved_model.Builder(str(folder))
    with graph.as_default(), v1.Session(graph=graph) as session:
        x = v1.placeholder(tf.float32, [None], "x")
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": 2.0 * x})
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signature_def_map={"serving_default": signature},
            main_op=first(),
        )
        builder.save()
