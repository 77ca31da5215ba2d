"""One order for the ops that several ranks run together.

In such ops ranks wait for each other. TensorFlow runs the ops of a graph in any order that their
inputs allow, so two ranks could wait for each other in two different ops. Control edges fix the
order to the one in which the ops were made, which is the same on all ranks.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_newest: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def collective(on_ranks: bool) -> Iterator[None]:
    """Orders the ops made inside after those of the previous such context in the same graph.

    Args:
        on_ranks: whether there are other ranks; without them no order is needed. Eager ops run in
            the order of their calls anyway.
    """
    if not on_ranks or tf.executing_eagerly():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    before = _newest.get(graph)
    known = len(graph.get_operations())
    with tf.control_dependencies([] if before is None else [before]):
        yield
    made = graph.get_operations()[known:]
    if made:
        _newest[graph] = made[-1]


def order_by_own_edges(result: Any) -> None:
    """Keeps TensorFlow from ordering a stateful op after all stateful ops made before it.

    That order would close a cycle where an op must run before one that was made earlier
    (`dense_gradients`).

    Args:
        result: an output of the op.
    """
    if not tf.executing_eagerly():
        order = getattr(result.graph, "experimental_acd_manager", None)
        if order is not None:
            order.run_independently(result.op)
