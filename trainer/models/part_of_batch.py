"""What layers must know that see a rank's part of a batch, and do what one process would do."""

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
        ranks: that have the other parts.
        rows: int32 scalar, rows of the batch of all ranks.
    """

    ranks: Ranks
    rows: Any

    @property
    def first(self) -> Any:
        """Int32 scalar: where the part begins in the batch, as in `hotrow.trainer.data.part`."""
        return self.ranks.rank * self.rows // self.ranks.size


_PART: ContextVar[PartOfBatch | None] = ContextVar("part_of_batch", default=None)


@contextlib.contextmanager
def part_of_batch(ranks: Ranks, rows: Any) -> Iterator[None]:
    """A context in which layers see one rank's part of a batch of so many rows."""
    token = _PART.set(PartOfBatch(ranks, rows))
    try:
        yield
    finally:
        _PART.reset(token)


def current_part() -> PartOfBatch | None:
    """Returns the part that layers see; None: they see whole batches."""
    return _PART.get()
