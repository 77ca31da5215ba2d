"""Stored rows that are not finite are found in every row type."""

from __future__ import annotations

import numpy as np
import pytest

from hotrow import _native
from hotrow.store.finite_rows import finite_rows


@pytest.mark.parametrize("row_type", ["float32", "float16", "bfloat16"])
def test_rows_that_are_not_finite_are_found(row_type: str) -> None:
    weights = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)
    weights[3, 0], weights[7, 5], weights[20, 2] = np.nan, np.inf, -np.inf
    rows = _native.encode_rows(row_type, weights)
    assert np.flatnonzero(~finite_rows(row_type, rows)).tolist() == [3, 7, 20]  # type: ignore[arg-type]


def test_a_scale_that_is_not_finite_is_found() -> None:
    rows = _native.encode_rows("int8", np.ones((4, 3), np.float32))
    assert finite_rows("int8", rows).all()
    rows[2, :4] = np.frombuffer(np.float32(np.nan).tobytes(), np.uint8)
    rows[3, 4:] = 0x7F
    assert np.flatnonzero(~finite_rows("int8", rows)).tolist() == [2]
