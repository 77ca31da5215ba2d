"""Parts of row lines: offsets, weights of every type, values that are not finite."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.errors import DataLossError
from hotrow.line_layout import ROW_TYPES, LineLayout

layouts = st.builds(
    LineLayout,
    width=st.integers(1, 9),
    weights_type=st.sampled_from(ROW_TYPES),
    state_type=st.sampled_from(ROW_TYPES),
    vectors=st.integers(0, 2),
    scalars=st.integers(0, 2),
)


def facts(layout):
    return {
        "width": layout.width,
        "weights_type": ROW_TYPES.index(layout.weights_type),
        "state_type": ROW_TYPES.index(layout.state_type),
        "vectors": layout.vectors,
        "scalars": layout.scalars,
        "line_bytes": layout.line_bytes,
    }


def encoded(values, type_name):
    """Returns float32 values that bfloat16 and float16 hold exactly, as bytes."""
    values = np.asarray(values, np.float32)
    if type_name == "float32":
        return values.tobytes()
    if type_name == "float16":
        return values.astype(np.float16).tobytes()
    return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def line_of(layout, weights, state, scalars):
    line = encoded(weights, layout.weights_type) + encoded(state, layout.state_type)
    line += b"\0" * (-len(line) % 4) + encoded(scalars, "float32")
    return np.frombuffer(line, np.uint8)


@given(layout=layouts, data=st.data())
def test_weights_and_finite_rows_are_read_as_they_were_written(layout, data):
    # quarters are exact in all three types
    value = st.one_of(
        st.integers(-64, 64).map(lambda n: n / 4), st.sampled_from([np.inf, -np.inf, np.nan])
    )
    rows, lines = [], []
    for _ in range(data.draw(st.integers(0, 3))):
        row = [
            data.draw(st.lists(value, min_size=n, max_size=n))
            for n in (layout.width, layout.width * layout.vectors, layout.scalars)
        ]
        rows.append(row)
        lines.append(line_of(layout, *row))
    array = np.array(lines, np.uint8).reshape(len(lines), layout.line_bytes)
    weights = layout.weights(array)
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(
        weights, np.array([r[0] for r in rows], np.float32).reshape(len(rows), layout.width)
    )
    expected = [bool(np.isfinite(np.concatenate(row)).all()) for row in rows]
    assert layout.finite(array).tolist() == expected


@given(layout=layouts)
def test_a_layout_is_read_back_from_what_a_table_says_of_itself(layout):
    assert LineLayout.from_facts(facts(layout)) == layout
    named = facts(layout) | {
        "weights_type": layout.weights_type,
        "state_type": layout.state_type,
    }
    assert LineLayout.from_facts(named) == layout


def test_two_byte_types_are_padded_before_scalars():
    layout = LineLayout(3, "bfloat16", "bfloat16", vectors=2, scalars=1)
    assert (layout.state_offset, layout.scalars_offset, layout.line_bytes) == (6, 20, 24)
    layout = LineLayout(16, "bfloat16", "float32", vectors=1)
    assert (layout.state_offset, layout.scalars_offset, layout.line_bytes) == (32, 96, 96)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"line_bytes": 17}, "a layout says 17 bytes a line, its parts have 16"),
        ({"weights_type": 3}, "is no layout of row lines"),
        ({"state_type": "float8"}, "is no layout of row lines"),
        ({"width": None}, "is no layout of row lines"),
    ],
    ids=["other length", "unknown number of a type", "unknown type", "no width"],
)
def test_a_damaged_layout_is_refused(change, said):
    with pytest.raises(DataLossError, match=said):
        LineLayout.from_facts(facts(LineLayout(2, vectors=1)) | change)
