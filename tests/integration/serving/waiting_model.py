"""A SavedModel whose load reports that it has begun, and waits for a file."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf
from integration.serving.doubling_model import save_doubling


def save_waiting(base: Path, version: int, began: Path, until: Path, bytes_needed: int = 0) -> Path:
    """Writes a version that takes its time to load; returns the base path.

    Its signature doubles `x`.

    Args:
        base: of the versions.
        version: appears when it is whole.
        began: the file that each load writes first.
        until: the file that it waits for then.
        bytes_needed: how much memory the load seems to need, by the size of its variables.
    """

    def wait() -> tf.Operation:
        with tf.control_dependencies([tf.io.write_file(str(began), "")]):
            waited = tf.while_loop(
                lambda turn: tf.equal(tf.size(_found(until, turn)), 0),
                lambda turn: [turn + 1],
                [tf.constant(0)],
            )
        return waited[0].op

    unfinished = base / f".{version}"
    save_doubling(unfinished, wait)
    variables = unfinished / "variables"
    variables.mkdir(exist_ok=True)
    with (variables / "variables.data-00000-of-00001").open("ab") as file:
        file.truncate(bytes_needed)  # a hole, which no tensor is in
    unfinished.rename(base / str(version))
    return base


def _found(file: Path, turn: tf.Tensor) -> tf.Tensor:
    """Returns the file's path if it is there; asked anew each turn, not folded to a constant."""
    name = str(file)
    return tf.io.matching_files(tf.strings.substr(name, 0, len(name) + turn))
