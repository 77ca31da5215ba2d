"""Columns of row lines: cut for ranks, joined to whole lines."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hotrow.line_layout import LineLayout
from hotrow.trainer.checkpoint.line_columns import cut_columns, join_columns, layout_of_columns

LAYOUTS = {
    "weights alone": LineLayout(width=5),
    "two vectors and a scalar": LineLayout(width=7, vectors=2, scalars=1),
    "types of 2 bytes": LineLayout(
        width=5, weights_type="bfloat16", state_type="float16", vectors=1, scalars=2
    ),
}


def lines_of(layout, rows=9):
    """Lines whose weights count up by row and column, so that each shows where it was."""
    lines = np.random.default_rng(0).integers(0, 256, (rows, layout.line_bytes), np.uint8)
    end = layout.state_offset + layout.vectors * layout.width * layout.state_bytes
    lines[:, end : layout.scalars_offset] = 0  # between the parts
    return lines


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_lines_that_are_cut_are_joined_to_the_same_bytes(layout, ranks):
    lines = lines_of(layout)
    bounds = [r * layout.width // ranks for r in range(ranks + 1)]
    pieces = []
    for start, stop in itertools.pairwise(bounds):
        cut = cut_columns(lines, layout, range(start, stop))
        own = layout_of_columns(layout, range(start, stop))
        assert cut.shape == (len(lines), own.line_bytes)
        np.testing.assert_array_equal(
            np.asarray(own.weights(cut)).view(np.uint32),
            np.ascontiguousarray(layout.weights(lines)[:, start:stop]).view(np.uint32),
        )
        np.testing.assert_array_equal(
            cut[:, own.scalars_offset :], lines[:, layout.scalars_offset :]
        )
        pieces.append((range(start, stop), cut))
    np.testing.assert_array_equal(join_columns(pieces, layout), lines)


def test_vectors_of_state_are_cut_one_by_one():
    layout = LineLayout(width=3, vectors=2)
    values = np.arange(9, dtype=np.float32)[None]  # weights, then two vectors
    cut = cut_columns(values.view(np.uint8), layout, range(1, 3)).view(np.float32)
    assert cut.tolist() == [[1, 2, 4, 5, 7, 8]]


def test_no_rows_are_cut_and_joined():
    layout = LineLayout(width=4, vectors=1)
    empty = np.empty((0, layout.line_bytes), np.uint8)
    halves = [(c, cut_columns(empty, layout, c)) for c in (range(2), range(2, 4))]
    assert join_columns(halves, layout).shape == empty.shape
