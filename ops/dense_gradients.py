"""Gradients of the dense part, summed over ranks while the backward pass of the tables goes on.

Gradients travel in buckets. A bucket starts as soon as its gradients exist; as in the backward
pass, those of the last variables come first. The queue of collectives runs ops in the order in
which they enter it, and this order must be the same on all ranks. Control edges fix it
(`collective_order`): the first bucket, then the tables' backward pass, then the other buckets. The
sums of batch normalisation keep the places at which they are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from hotrow.errors import InvalidArgumentError
from hotrow.ops.all_reduce import START_OP, start_sums, wait_for_sums
from hotrow.ops.collective_order import collective
from hotrow.ops.ranks import Ranks

BUCKET_BYTES = 4 << 20
"""Large enough that a message's fixed cost does not count, small enough to start early."""
_BUCKET = "dense gradients, bucket"
_TABLES_BACKWARD = "HotrowBackward"
_COLLECTIVE = (START_OP, _TABLES_BACKWARD, "HotrowLookup", "HotrowCommit")


def sum_over_ranks(
    gradients: Sequence[Any],
    ranks: Ranks,
    *,
    bucket_bytes: int = BUCKET_BYTES,
    names: Sequence[str] | None = None,
) -> list[Any]:
    """Returns the sums over ranks of dense gradients: the same bits on all ranks.

    Call it once a step, with the same gradients on all ranks; it also works in a `tf.function`.

    Args:
        gradients: float32 tensors in the order of the variables; a None is returned as None.
        ranks: on one rank the gradients are returned unchanged.
        bucket_bytes: bytes of gradients in one message; a larger gradient is a message of its own.
        names: names of the variables, for messages.

    Raises:
        InvalidArgumentError: a gradient is sparse, or not float32.
        tf.errors.OpError: a rank failed; raised when the op computes the sums.
    """
    if ranks.size == 1:
        return list(gradients)
    for number, gradient in enumerate(gradients):
        _check(gradient, names[number] if names else f"gradient {number} of {len(gradients)}")
    sums = list(gradients)
    tables = None if tf.executing_eagerly() else _tables_backward()
    early, late = _buckets(gradients, bucket_bytes, tables)
    tickets = []
    for number, bucket in enumerate([*early, *late]):
        values = [gradients[i] for i in bucket]
        what = f"{_BUCKET} {number}"
        if number == 0 and early:
            tickets.append(_start_before(tables, values, ranks, what))
        else:
            with collective(True):
                tickets.append(start_sums(values, ranks, what))
    for bucket, ticket in zip([*early, *late], tickets, strict=True):
        values = [gradients[i] for i in bucket]
        for i, total in zip(bucket, wait_for_sums(ticket, values), strict=True):
            sums[i] = total
    return sums


def _check(gradient: Any, name: str) -> None:
    if isinstance(gradient, tf.IndexedSlices):
        raise InvalidArgumentError(
            f"{name}: a sparse gradient (IndexedSlices), which is not summed over ranks; use "
            "hotrow.DistributedEmbedding for tables, or tf.convert_to_tensor on the gradient"
        )
    if gradient is not None and gradient.dtype != tf.float32:
        raise InvalidArgumentError(
            f"{name}: type {gradient.dtype.name}; gradients are summed over ranks in float32"
        )


@dataclass(frozen=True)
class _TablesBackward:
    """The first op of this step's backward pass of tables on ranks, and the ops made before it.

    Attributes:
        before: the last of these ops that ranks run together; None: there is none.
    """

    op: Any
    before: Any
    made_before: frozenset[str]


def _tables_backward() -> _TablesBackward | None:
    operations = tf.compat.v1.get_default_graph().get_operations()
    first = None
    for place, op in enumerate(operations):
        if op.type == START_OP and op.get_attr("what").startswith(_BUCKET.encode()):
            first = None  # of a step before this one
        elif op.type == _TABLES_BACKWARD and first is None and _on_ranks(op):
            first = place
    if first is None:
        return None
    made = operations[:first]
    before = next((op for op in reversed(made) if op.type in _COLLECTIVE), None)
    return _TablesBackward(operations[first], before, frozenset(op.name for op in made))


def _on_ranks(op: Any) -> bool:
    return "collective" in op.node_def.attr and bool(op.get_attr("collective"))


def _start_before(
    tables: _TablesBackward | None, values: list[Any], ranks: Ranks, what: str
) -> Any:
    """Starts a sum whose place in the order is just before the tables' backward pass."""
    assert tables is not None
    with tf.control_dependencies([] if tables.before is None else [tables.before]):
        ticket = start_sums(values, ranks, what)
    tables.op._add_control_input(ticket.op)
    return ticket


def _buckets(
    gradients: Sequence[Any], bucket_bytes: int, tables: _TablesBackward | None
) -> tuple[list[list[int]], list[list[int]]]:
    """Returns the numbers of the gradients of each bucket: those before the tables, and the rest.

    At most one bucket runs before the tables. Its gradients were made earlier in the graph than the
    tables' backward pass, and so cannot depend on it.
    """
    backwards = [i for i in reversed(range(len(gradients))) if gradients[i] is not None]
    ready = [i for i in backwards if tables and gradients[i].op.name in tables.made_before]
    early = _filled(gradients, ready, bucket_bytes)[:1]
    taken = {i for bucket in early for i in bucket}
    return early, _filled(gradients, [i for i in backwards if i not in taken], bucket_bytes)


def _filled(gradients: Sequence[Any], order: Sequence[int], bucket_bytes: int) -> list[list[int]]:
    buckets: list[list[int]] = []
    filled = bucket_bytes
    for i in order:
        # A gradient of unknown size gets a bucket of its own.
        count = gradients[i].shape.num_elements()
        size = bucket_bytes if count is None else 4 * count
        if not buckets or filled + size > bucket_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(i)
        filled += size
    return buckets
