"""Sums of tensors over ranks, by ops that start them and ops that wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hotrow.ops import library
from hotrow.ops.collective_order import collective, order_by_own_edges
from hotrow.ops.ranks import Ranks

START_OP = "HotrowAllReduceStart"


def start_sums(values: Sequence[Any], ranks: Ranks, what: str) -> Any:
    """Starts to sum float32 tensors over ranks; returns a ticket for `wait_for_sums`.

    All ranks start the same sums in the same order; the caller ensures this (`collective_order`).

    Args:
        values: tensors to sum, of the same shapes on all ranks.
        ranks: more than one.
        what: name of the sum for messages, the same on all ranks.
    """
    with tf.device("CPU"):
        ticket = library.load().hotrow_all_reduce_start(
            values=list(values), ranks=ranks.handle, what=what
        )
    order_by_own_edges(ticket)
    return ticket


def wait_for_sums(ticket: Any, values: Sequence[Any]) -> list[Any]:
    """Returns the sums, the same bits on all ranks.

    Args:
        ticket: from `start_sums`; wait for it once.
        values: the tensors that `start_sums` got.

    Raises:
        tf.errors.OpError: a rank failed; raised when the op computes the sums.
    """
    with tf.device("CPU"):
        sums = list(library.load().hotrow_all_reduce_wait(ticket=ticket, values=list(values)))
    order_by_own_edges(sums[0])
    return sums


def sum_of_ranks(value: Any, ranks: Ranks, what: str) -> Any:
    """Returns the sum of a float32 tensor over ranks; gradients flow to the values of all ranks.

    Args, raises: as `start_sums` and `wait_for_sums`; `value` is one tensor.
    """

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def total(own: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            return _sum(upstream, ranks, f"gradient of {what}")

        return _sum(own, ranks, what), gradient

    return total(value)


def _sum(value: Any, ranks: Ranks, what: str) -> Any:
    with collective(True):
        ticket = start_sums([value], ranks, what)
    (total,) = wait_for_sums(ticket, [value])
    return total
