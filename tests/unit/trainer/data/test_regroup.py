"""Pieces of any size into groups of one size."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hotrow.trainer.data.regroup import regroup


def join(pieces: Sequence[list[int]]) -> list[int]:
    return [row for piece in pieces for row in piece]


@given(st.lists(st.lists(st.integers(), max_size=7), max_size=7), st.integers(1, 9))
def test_groups_keep_every_row_in_order(pieces: list[list[int]], rows: int) -> None:
    groups = list(regroup(pieces, rows, size=len, cut=lambda p, a, b: p[a:b], join=join))
    assert join(groups) == join(pieces)
    assert all(len(group) == rows for group in groups[:-1])
    assert all(1 <= len(group) <= rows for group in groups)
