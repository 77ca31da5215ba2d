"""Weights as a store keeps them."""

from __future__ import annotations

import numpy as np
import pytest

from hotrow.errors import InvalidArgumentError
from hotrow.ops.export.row_encoding import encoded_rows

KEYS = np.array([3, -7, 5], np.int64)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_rows_that_int8_cannot_hold_are_named(wrong: float) -> None:
    weights = np.ones((3, 2), np.float32)
    weights[1, 1] = weights[2, 0] = wrong
    with pytest.raises(InvalidArgumentError, match=r"table 'city': 2 rows .* key -7; .*--row_type"):
        encoded_rows("city", "int8", KEYS, weights)
    assert encoded_rows("city", "float16", KEYS, weights).shape == (3, 4)
