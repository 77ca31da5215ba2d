"""Regroups pieces of any size into groups of one size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def regroup(
    pieces: Iterable[T],
    rows: int,
    *,
    size: Callable[[T], int],
    cut: Callable[[T, int, int], T],
    join: Callable[[Sequence[T]], T],
) -> Iterator[T]:
    """Yields the rows of `pieces` in order, `rows` at a time; the last group may have fewer.

    Args:
        pieces: objects that hold rows.
        rows: rows of a group, at least 1.
        size: returns the number of rows in a piece.
        cut: returns rows `start` to `stop` of a piece.
        join: joins one or more pieces into one.
    """
    held: list[T] = []
    held_rows = 0
    for piece in pieces:
        start, end = 0, size(piece)
        while start < end:
            stop = min(end, start + rows - held_rows)
            held.append(cut(piece, start, stop))
            held_rows += stop - start
            start = stop
            if held_rows == rows:
                yield join(held)
                held, held_rows = [], 0
    if held:
        yield join(held)
