"""Checks of descriptions, with one-line errors: the field, its value and the legal values."""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from typing import Any, TypeVar

from hotrow.errors import InvalidArgumentError, nearest

_Described = TypeVar("_Described")
# Our names for arguments of other libraries.
_ALIASES = dict.fromkeys(("dim", "dimension", "output_dim", "width"), "embedding_dim")


def named_arguments(described: type[_Described]) -> type[_Described]:
    """Makes a dataclass refuse unknown keyword arguments with an `InvalidArgumentError`."""
    original: Any = described.__init__
    names = [field.name for field in dataclasses.fields(described)]  # type: ignore[arg-type]

    @functools.wraps(original)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in names:
                alias = _ALIASES.get(name)
                hint = f" (did you mean {alias!r}?)" if alias in names else nearest(name, names)
                raise InvalidArgumentError(
                    f"{described.__name__} has no argument {name!r}{hint}; "
                    f"the arguments are {', '.join(names)}"
                )
        original(self, *args, **given)

    described.__init__ = checked  # type: ignore[method-assign]
    return described


def require(condition: bool, what: str, value: object, legal: str) -> None:
    """Checks a condition on a value.

    Raises:
        InvalidArgumentError: the condition is false.
    """
    if not condition:
        raise InvalidArgumentError(f"{what} is {value!r}; must be {legal}")


def require_one_of(what: str, value: object, legal: tuple[str | None, ...]) -> None:
    """Checks that a value is one of the legal texts (or None).

    Raises:
        InvalidArgumentError: it is not; the message suggests the nearest one.
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
    """Returns a number as float32, as the native core will store it; NaN for other values."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return math.nan
    try:
        (rounded,) = struct.unpack("f", struct.pack("f", value))
    except (OverflowError, struct.error):
        return math.nan
    return float(rounded) if math.isfinite(rounded) else math.nan
