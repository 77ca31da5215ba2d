"""A SavedModel that aborts the process that loads it, once a file is there."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

SIGNAL = "SIGABRT"


def save_lethal(base: Path, version: int, trigger: Path) -> Path:
    """Writes a version that ends the process while it is loaded; returns the base path.

    Its signature doubles `x`. TensorFlow's op `Abort` ends the process by LOG(FATAL), as a failed
    CHECK does.

    Args:
        base: of the versions.
        version: appears when it is whole.
        trigger: without this file, it loads and serves.
    """
    v1 = tf.compat.v1
    graph = tf.Graph()
    unfinished = base / f".{version}"
    builder = v1.saved_model.Builder(str(unfinished))
    with graph.as_default(), v1.Session(graph=graph) as session:
        x = v1.placeholder(tf.float32, [None], "x")
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": 2.0 * x})
        is_there = tf.size(tf.io.matching_files(str(trigger))) > 0
        initialized = tf.cond(is_there, _abort, lambda: tf.constant(1))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signature_def_map={"serving_default": signature},
            main_op=initialized.op,
        )
        builder.save()
    unfinished.rename(base / str(version))
    return base


def _abort() -> tf.Tensor:
    with tf.control_dependencies([tf.raw_ops.Abort(error_msg="of a test")]):
        return tf.identity(tf.constant(2))
