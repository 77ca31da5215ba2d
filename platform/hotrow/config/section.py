"""The base of every section of a configuration: frozen, strictly typed, no unknown keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from hotrow.errors import InvalidArgumentError, nearest

Spec = TypeVar("Spec")


def problem(message: str) -> PydanticCustomError:
    """Returns the exception for a validator to raise; its text reaches the user unchanged."""
    return PydanticCustomError("hotrow", "{message}", {"message": message})


def from_spec(kind: type[Spec], options: Mapping[str, Any]) -> Spec:
    """Returns `kind(**options)` of `hotrow.spec`; its errors become the validator's problems."""
    try:
        return kind(**options)
    except InvalidArgumentError as err:
        raise problem(str(err)) from err


def tuples_from_lists(value: Any) -> Any:
    """Returns `value` with every list in it, at any depth of lists, as a tuple."""
    if isinstance(value, list | tuple):
        return tuple(tuples_from_lists(item) for item in value)
    return value


class Section(BaseModel):
    """A part of the configuration.

    Types are strict ("3" is not 3, 1 is not true). Unknown keys are refused with the nearest legal
    one. Sequences become tuples. Instances are immutable.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        for key in value:
            if key not in cls.model_fields:
                legal = list(cls.model_fields)
                raise problem(
                    f"unknown key {key!r}{nearest(str(key), legal)}; legal: {', '.join(legal)}"
                )
        return {key: tuples_from_lists(item) for key, item in value.items()}
