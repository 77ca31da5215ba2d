"""Whether stored rows hold finite weights only. N rows, B bytes of a stored row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hotrow.store.row_store import Rows
from hotrow.store.spec import RowType

_BFLOAT16_EXPONENT = np.uint16(0x7F80)
_SCALE_BYTES = 4


def finite_rows(row_type: RowType, rows: Rows) -> npt.NDArray[np.bool_]:
    """Returns bool [N] for rows uint8 [N, B]."""
    finite: npt.NDArray[np.bool_]
    if row_type == "bfloat16":
        finite = np.asarray(finite_bfloat16(np.ascontiguousarray(rows).view("<u2")).all(axis=1))
    elif row_type == "int8":  # only the scale is a floating-point number
        scales = np.ascontiguousarray(rows[:, :_SCALE_BYTES]).view("<f4")
        finite = np.isfinite(scales).all(axis=1)
    else:
        kind = "<f4" if row_type == "float32" else "<f2"
        finite = np.isfinite(np.ascontiguousarray(rows).view(kind)).all(axis=1)
    return finite


def finite_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.bool_]:
    """Returns whether each number is finite, by its bits."""
    finite: npt.NDArray[np.bool_] = (bits & _BFLOAT16_EXPONENT) != _BFLOAT16_EXPONENT
    return finite
