"""Weights in the encoding of a store. N rows, D weights, B bytes of a stored row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hotrow import _native
from hotrow.errors import InvalidArgumentError
from hotrow.ops.row_batch import Keys
from hotrow.store.row_store import Rows
from hotrow.store.spec import RowType


def encoded_rows(
    table: str, row_type: RowType, keys: Keys, weights: npt.NDArray[np.float32]
) -> Rows:
    """Returns rows uint8 [N, B].

    Args:
        table: the table's name, for messages.
        row_type: the store's row type.
        keys: int64 [N].
        weights: float32 [N, D].

    Raises:
        InvalidArgumentError: a weight that is not finite, which an int8 row cannot hold.
    """
    if row_type == "int8":
        finite = np.isfinite(weights).all(axis=1)
        if not finite.all():
            wrong = keys[~finite]
            raise InvalidArgumentError(
                f"table {table!r}: {len(wrong)} rows have weights that are not finite, the first "
                f"of them key {wrong[0]}; int8 rows hold finite weights only: choose another "
                "--row_type, or find out why training diverged"
            )
    rows: Rows = _native.encode_rows(row_type, np.ascontiguousarray(weights))
    return rows
