"""The part of a batch on a rank, for layers that must act as one process would."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from hotrow.ops.ranks import Ranks


@dataclass(frozen=True)
class PartOfBatch:
    """A rank's part of a batch.

    Attributes:
        ranks: the ranks, which have the other parts.
        rows: int32 scalar, number of rows in the batch of all ranks.
        first: int32 scalar, where the part begins in the batch.
    """

    ranks: Ranks
    rows: Any
    first: Any


_PART: ContextVar[PartOfBatch | None] = ContextVar("part_of_batch", default=None)


@contextlib.contextmanager
def part_of_batch(ranks: Ranks, rows: Any, first: Any = None) -> Iterator[None]:
    """A context in which layers get one rank's part of a batch of `rows` rows.

    Args:
        ranks: the ranks, which have the other parts.
        rows: int32 scalar.
        first: int32 scalar, where the part begins; None: as in `hotrow.trainer.data.part`.
    """
    if first is None:
        first = ranks.rank * rows // ranks.size
    token = _PART.set(PartOfBatch(ranks, rows, first))
    try:
        yield
    finally:
        _PART.reset(token)


def current_part() -> PartOfBatch | None:
    """Returns the part that layers get; None: they get whole batches."""
    return _PART.get()
