"""The `tables` section: optimizer and initial values of each embedding table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from hotrow.config.section import Section, problem

DEFAULT_TABLE = "default"
WIDE = "wide"
"""Key of the settings of all linear (width 1) tables, and the suffix of their names."""


class InitializerConfig(Section):
    """How a new row starts: exactly one of these.

    Attributes:
        uniform: a for values in [-a, a).
        normal: the deviation of values around 0.
        constant: the value itself; the text `zeros` is `{constant: 0}`.
    """

    uniform: float | None = Field(default=None, gt=0)
    normal: float | None = Field(default=None, gt=0)
    constant: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _zeros(cls, value: Any) -> Any:
        if value == "zeros":
            return {"constant": 0.0}
        if isinstance(value, str):
            raise problem(
                f"{value!r} is not legal; expected zeros, {{uniform: a}}, {{normal: s}} or "
                "{constant: c}"
            )
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> InitializerConfig:
        given = [v for v in (self.uniform, self.normal, self.constant) if v is not None]
        if len(given) != 1:
            raise problem(
                f"{len(given)} ways are given; expected exactly one of uniform, normal, constant"
            )
        return self

    @model_serializer(mode="wrap")
    def _only_the_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, float]:
        return {key: value for key, value in handler(self).items() if value is not None}


class TableSettings(Section):
    """Settings of one table.

    Attributes:
        optimizer: the table's own optimizer, fused into its backward.
        learning_rate: its step size.
        initial_accumulator: where Adagrad's sum of squares starts (Keras' default).
        epsilon: Adagrad's (Keras' default).
        initializer: how a new row starts.
        default_value: every weight of the row that an unknown key reads outside training.
        vocabulary_size: keys lie in [0, vocabulary_size); None: any 64-bit key.
    """

    optimizer: Literal["sgd", "adagrad", "momentum", "rowwise_adagrad", "adam", "ftrl"] = "adagrad"
    learning_rate: float = Field(default=0.05, gt=0)
    initial_accumulator: float = Field(default=0.1, ge=0)
    epsilon: float = Field(default=1e-7, gt=0)
    initializer: InitializerConfig = InitializerConfig(uniform=0.05)
    default_value: float = 0.0
    vocabulary_size: int | None = Field(default=None, ge=1)


def inherit_settings(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Returns raw `tables` with every entry completed from the more general ones.

    `default` gives what a table leaves out. Linear tables (`<column>/wide`) start at zero and
    take what they leave out from `wide`, then from `default`. Entries that are no mappings are
    left for the validation to refuse.
    """
    default = tables.get(DEFAULT_TABLE, {})
    if not isinstance(default, Mapping):
        return dict(tables)
    wide = {**default, "initializer": "zeros"}
    given_wide = tables.get(WIDE, {})
    if isinstance(given_wide, Mapping):
        wide.update(given_wide)
    complete: dict[str, Any] = {DEFAULT_TABLE: dict(default), WIDE: wide}
    for name, settings in tables.items():
        base = wide if name == WIDE or str(name).endswith(f"/{WIDE}") else default
        mapping = isinstance(settings, Mapping)
        complete[name] = {**base, **settings} if mapping else settings
    return complete
