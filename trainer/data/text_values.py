"""Converts text to numbers and marks bad rows: the slow, exact path of the readers.

Every function takes an Arrow string array [B] and returns the converted array [B] and a bool
array [B] that is true where the text is not legal (the converted value there is null).  Blanks
around a number do not count.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools: TypeAlias = npt.NDArray[np.bool_]


def to_numbers(text: pa.Array) -> tuple[pa.Array, Bools]:
    """Returns float32 [B], null where the text is empty; infinite is not legal, `nan` is NaN."""
    values, bad = _cast(_empty_to_null(text), pa.float32())
    infinite = np.isinf(values.to_numpy(zero_copy_only=False))
    return _null_where(values, infinite), bad | infinite


def to_weights(text: pa.Array) -> tuple[pa.Array, Bools]:
    """Returns float32 [B]; an empty, negative or non-finite weight is not legal."""
    values, bad = to_numbers(text)
    # NaN and null compare false.
    legal = pc.greater_equal(values, 0.0).fill_null(False).to_numpy(zero_copy_only=False)
    return _null_where(values, ~legal), bad | ~legal


def to_integers(text: pa.Array) -> tuple[pa.Array, Bools]:
    """Returns int64 [B], null where the text is empty."""
    return _cast(_empty_to_null(text), pa.int64())


def to_labels(text: pa.Array, positive: str | None) -> tuple[pa.Array, Bools]:
    """Returns float32 [B] of 0 and 1: 1 where the text is `positive`; without it, numbers 0 or 1.

    An empty text is not legal.
    """
    if positive is not None:
        bad = pc.equal(text, "").to_numpy(zero_copy_only=False)
        return pc.equal(text, positive).cast(pa.float32()), bad
    values, bad = _cast(pc.ascii_trim_whitespace(text), pa.float32())
    bad |= ~np.isin(values.to_numpy(zero_copy_only=False), (0.0, 1.0))
    return values, bad


def expected_label(positive: str | None, text_labels: bool = True) -> str:
    """Returns what a label must be, for a message.

    Args:
        positive: as in `to_labels`.
        text_labels: whether the format takes `data.positive`.
    """
    if positive is not None:
        return "a label"
    hint = "; set data.positive (--positive) to the text that means 1" if text_labels else ""
    return f"0 or 1{hint}"


def bad_integer_lists(text: pa.Array, separator: str) -> Bools:
    """Returns bool [B]: true where a part between separators is neither an integer nor empty."""
    parts = pc.split_pattern(text, separator)
    _, bad_parts = to_integers(parts.flatten())
    rows = np.repeat(np.arange(len(text)), np.diff(parts.offsets.to_numpy()))
    bad = np.zeros(len(text), dtype=np.bool_)
    bad[rows[bad_parts]] = True
    return bad


def _empty_to_null(text: pa.Array) -> pa.Array:
    text = pc.ascii_trim_whitespace(text)
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)


def _null_where(values: pa.Array, mask: Bools) -> pa.Array:
    if not mask.any():
        return values
    return pc.if_else(pa.array(mask), pa.scalar(None, values.type), values)


def _cast(text: pa.Array, target: pa.DataType) -> tuple[pa.Array, Bools]:
    """Casts values; finds those that fail by bisection, so few bad rows cost little."""
    bad = np.zeros(len(text), dtype=np.bool_)

    def convert(part: pa.Array, start: int) -> list[pa.Array]:
        try:
            return [pc.cast(part, target)]
        except pa.ArrowInvalid:
            if len(part) == 1:
                bad[start] = True
                return [pa.nulls(1, target)]
            half = len(part) // 2
            return convert(part.slice(0, half), start) + convert(part.slice(half), start + half)

    return pa.concat_arrays(convert(text, 0)), bad
