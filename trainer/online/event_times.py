"""`event_times`: the values of a column as event times. N events."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotrow.trainer.data import text_values

Times: TypeAlias = npt.NDArray[np.float64]

MILLISECONDS_FROM = 1e11
"""Numbers from here on are milliseconds: as seconds, this is the year 5138; as those, 1973."""

LEGAL = "an event time: seconds or milliseconds since 1970, or ISO 8601, before the year 2100"
_END = 4102444800.0  # 2100-01-01: later ones would make all that follow late


def event_times(values: pa.Array) -> Times:
    """Returns float64 [N], Unix seconds; NaN where a value is missing or no legal time.

    ISO 8601 without a zone is UTC.

    Args:
        values: numbers or texts [N].
    """
    if pa.types.is_string(values.type):
        numbers = _numbers(values)
    else:
        numbers = pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False)
    times = np.where(np.abs(numbers) >= MILLISECONDS_FROM, numbers / 1000.0, numbers)
    times[~((times >= 0.0) & (times < _END))] = np.nan
    return times


def _numbers(text: pa.Array) -> Times:
    """Returns float64 [N] of texts; writes those that are ISO 8601 as seconds."""
    try:
        numbers: Times = pc.cast(text, pa.float64()).to_numpy(zero_copy_only=False).copy()
    except pa.ArrowInvalid:
        pass
    else:
        return numbers
    return np.fromiter((_one(value.as_py()) for value in text), np.float64, len(text))


def _one(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
    except (AttributeError, ValueError):
        return math.nan
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def to_text(values: pa.Array) -> pa.Array:
    """Returns numbers or texts as texts, "" where null."""
    if not pa.types.is_string(values.type):
        values = pc.cast(values, pa.string())
    return values.fill_null("") if values.null_count else values


def missing(text: pa.Array) -> text_values.Bools:
    """Returns bool [N], true where a text is blank."""
    blank: text_values.Bools = pc.equal(pc.ascii_trim_whitespace(text), "").to_numpy(
        zero_copy_only=False
    )
    return blank
