"""Checks of descriptions: one line that names the field, its value and what is legal."""

from __future__ import annotations

import math
import struct

from hotrow.errors import InvalidArgumentError, nearest


def require(condition: bool, what: str, value: object, legal: str) -> None:
    """Checks a condition of a value.

    Raises:
        InvalidArgumentError: it does not hold.
    """
    if not condition:
        raise InvalidArgumentError(f"{what} is {value!r}; must be {legal}")


def require_one_of(what: str, value: object, legal: tuple[str | None, ...]) -> None:
    """Checks that a value is one of the legal texts (or None).

    Raises:
        InvalidArgumentError: it is not; the message has the nearest one.
    """
    if value not in legal:
        raise InvalidArgumentError(
            f"{what} is {value!r}; must be one of {', '.join(repr(text) for text in legal)}"
            + nearest(str(value), [text for text in legal if text])
        )


def is_integer(value: object, least: int, most: int = 2**63 - 1) -> bool:
    """Returns whether `value` is an integer (no boolean) in [least, most]."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def float32(value: object) -> float:
    """Returns a number as the float32 that the native core will hold; NaN for all else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return math.nan
    try:
        (rounded,) = struct.unpack("f", struct.pack("f", value))
    except (OverflowError, struct.error):
        return math.nan
    return float(rounded) if math.isfinite(rounded) else math.nan
