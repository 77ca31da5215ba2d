"""List columns of Parquet: any number of values a row. B rows, N values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotrow.trainer.data import text_values
from hotrow.trainer.data.columns import ColumnKind
from hotrow.trainer.data.text_values import Bools


def is_list(stored: pa.DataType) -> bool:
    """Returns whether a column of this type has a list for each row."""
    return bool(
        pa.types.is_list(stored)
        or pa.types.is_large_list(stored)
        or pa.types.is_fixed_size_list(stored)
    )


def read_lists(stored: pa.Array, kind: ColumnKind) -> tuple[pa.ListArray, Bools]:
    """Returns lists of int64 or string [B] without nulls, and bool [B] where one is malformed.

    A null list is an empty one. Null values and empty texts are dropped.

    Args:
        stored: lists, large lists or fixed-size lists [B] of a type that casts to text.
        kind: `IDS` for int64, `TEXTS` for string.
    """
    lengths = pc.list_value_length(stored).fill_null(0).to_numpy().astype(np.int64)
    values, bad = _converted(stored.flatten(), kind)
    kept = values.is_valid().to_numpy(zero_copy_only=False)
    before = np.concatenate([[0], np.cumsum(kept)])
    splits = np.concatenate([[0], np.cumsum(lengths)])
    bad_rows = np.zeros(len(stored), dtype=np.bool_)
    bad_rows[np.repeat(np.arange(len(stored)), lengths)[bad]] = True
    offsets = pa.array(before[splits], type=pa.int32())
    return pa.ListArray.from_arrays(offsets, values.drop_null()), bad_rows


def float_lists(stored: pa.Array) -> pa.ListArray:
    """Returns lists of float32 [B] without nulls."""
    lengths = pc.list_value_length(stored).fill_null(0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), type=pa.int32())
    return pa.ListArray.from_arrays(offsets, pc.cast(stored.flatten(), pa.float32()))


def as_text(values: pa.Array) -> pa.Array:
    """Returns values as text, "" where null; whole floats stay exact in the columns read."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return pc.cast(values, pa.string()).fill_null("")


def _converted(values: pa.Array, kind: ColumnKind) -> tuple[pa.Array, Bools]:
    """Returns values [N], null where they are dropped, and bool [N] where they are malformed."""
    if kind is ColumnKind.IDS:
        if pa.types.is_signed_integer(values.type):
            return values.cast(pa.int64()), np.zeros(len(values), dtype=np.bool_)
        return text_values.to_integers(as_text(values))
    text = as_text(values)
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    return text, np.zeros(len(values), dtype=np.bool_)
