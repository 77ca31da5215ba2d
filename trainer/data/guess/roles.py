"""The role of each column of a summary in a model: a number, a key, a list of keys, or none.

The rules guess from name, type and number of distinct values; the user must check a proposal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from hotrow.trainer.data.summary import ColumnSummary

FEW_VALUES = 50
"""An integer column with at most so many distinct values is a column of keys."""
LONG_TAIL = 20.0
"""A number whose greatest value is so many times its mean gets a logarithm."""
_UNIQUE_SHARE = 0.9
_UNIQUE_FROM_ROWS = 100
_NAMES_OF_KEYS = frozenset(
    (
        "id", "ids", "uid", "uuid", "guid", "code", "ip", "app", "device", "os", "channel",
        "user", "item", "movie", "product", "store", "shop", "site", "ad", "advertiser",
        "publisher", "brand", "category", "cat", "zip", "postal", "region", "city", "country",
        "type", "segment", "group", "sku", "query", "page", "url", "host", "agent", "session",
        "cookie", "hash", "key",
    )
)  # fmt: skip
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CODE = re.compile(r"C\d+")  # as Criteo and Avazu name categories


class Role(Enum):
    """The role of a column."""

    LEFT_OUT = "left out"
    NUMBER = "number"
    LOG_NUMBER = "number with a long tail"
    HASHED = "hashed keys"
    INTEGERS = "integer keys"


@dataclass(frozen=True)
class ColumnRole:
    """A column's role.

    Attributes:
        column: its statistics.
        role: its role in the model.
        reason: why it is left out, or what to check; "" if there is nothing to note.
    """

    column: ColumnSummary
    role: Role
    reason: str = ""


def role_of(column: ColumnSummary, counted_rows: int) -> ColumnRole:
    """Returns the proposed role of a column.

    Args:
        column: its statistics.
        counted_rows: number of rows whose distinct values were counted.
    """
    if column.distinct < 2 and not (column.distinct and column.missing_share):
        values = "no value" if not column.distinct else "one value"
        return ColumnRole(column, Role.LEFT_OUT, f"it has {values}")
    if column.kind == "ids":
        return ColumnRole(column, Role.INTEGERS)
    if column.kind == "texts":
        return ColumnRole(column, Role.HASHED)
    present = counted_rows * (1 - column.missing_share)
    unique = present >= _UNIQUE_FROM_ROWS and column.distinct >= _UNIQUE_SHARE * present
    if column.kind == "text":
        return _role_of_text(column, unique)
    if column.kind == "integer" and _is_named_like_a_key(column.name):
        if unique:
            return ColumnRole(column, Role.LEFT_OUT, "nearly every row has a value of its own")
        return ColumnRole(column, Role.INTEGERS)
    if column.kind == "integer" and column.distinct <= FEW_VALUES:
        return ColumnRole(column, Role.INTEGERS)
    reason = f"{column.distinct:,} distinct integers" if column.kind == "integer" else ""
    return ColumnRole(column, Role.LOG_NUMBER if _has_long_tail(column) else Role.NUMBER, reason)


def _role_of_text(column: ColumnSummary, unique: bool) -> ColumnRole:
    if unique and column.separator is None:
        what = "a time: derive the hour or the weekday" if _is_time(column) else ""
        reason = "nearly every row has a value of its own"
        return ColumnRole(column, Role.LEFT_OUT, f"{reason}; {what}" if what else reason)
    if column.separator is not None:
        return ColumnRole(column, Role.HASHED, f"several values between {column.separator!r}")
    if column.number_share:
        numbers = f"{column.number_share:.1%} of its values are numbers"
        return ColumnRole(column, Role.HASHED, numbers)
    return ColumnRole(column, Role.HASHED)


def _is_named_like_a_key(name: str) -> bool:
    words = {word.lower() for word in _WORD.findall(name)}
    return bool(words & _NAMES_OF_KEYS) or _CODE.fullmatch(name) is not None


def _has_long_tail(column: ColumnSummary) -> bool:
    if column.mean is None or column.low is None or column.high is None:
        return False
    return max(abs(column.low), abs(column.high)) > LONG_TAIL * max(abs(column.mean), 1.0)


def _is_time(column: ColumnSummary) -> bool:
    try:
        pc.cast(pa.array([value for value, _ in column.top]), pa.timestamp("us"))
    except pa.ArrowInvalid:
        return False
    return bool(column.top)
