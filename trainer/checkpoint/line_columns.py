"""Columns of row lines: cuts a line into the columns of a rank, and joins them again.

A rank of a table that is split by columns has some columns of every row's weights, and the state of
these columns; every rank has a row's scalars. N rows, L bytes of a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hotrow.line_layout import LineLayout

Lines = npt.NDArray[np.uint8]


def layout_of_columns(layout: LineLayout, columns: range) -> LineLayout:
    """Returns the layout of lines that hold some of the columns."""
    return replace(layout, width=len(columns))


def cut_columns(lines: Lines, layout: LineLayout, columns: range) -> Lines:
    """Returns lines uint8 [N, L'] with some of the columns of lines uint8 [N, L]."""
    if columns == range(layout.width):
        return lines
    cut = layout_of_columns(layout, columns)
    result = np.zeros((len(lines), cut.line_bytes), np.uint8)
    places = zip(_places(cut, range(len(columns))), _places(layout, columns), strict=True)
    for there, here in places:
        result[:, there] = lines[:, here]
    result[:, cut.scalars_offset :] = lines[:, layout.scalars_offset :]
    return result


def join_columns(pieces: Sequence[tuple[range, Lines]], layout: LineLayout) -> Lines:
    """Returns lines uint8 [N, L] of `layout`, joined from lines of some columns each.

    Args:
        pieces: the columns and lines of each piece; together they have all columns of `layout`.
        layout: layout of the result.
    """
    first_columns, first_lines = pieces[0]
    if first_columns == range(layout.width):
        return first_lines
    result = np.zeros((len(first_lines), layout.line_bytes), np.uint8)
    for columns, lines in pieces:
        cut = layout_of_columns(layout, columns)
        places = zip(_places(layout, columns), _places(cut, range(len(columns))), strict=True)
        for there, here in places:
            result[:, there] = lines[:, here]
        result[:, layout.scalars_offset :] = lines[:, cut.scalars_offset :]
    return result


def _places(layout: LineLayout, columns: range) -> Iterator[slice]:
    """Yields the places of some columns' values in a line: weights, then each vector of state."""
    size = layout.weights_bytes
    yield slice(columns.start * size, columns.stop * size)
    size = layout.state_bytes
    for vector in range(layout.vectors):
        begin = layout.state_offset + vector * layout.width * size
        yield slice(begin + columns.start * size, begin + columns.stop * size)
