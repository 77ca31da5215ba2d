"""The `tables` section: optimizer, initial values, row types, admission and expiry of tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from hotrow.config.admission import AdmissionConfig, ExpiryConfig
from hotrow.config.features import DEFAULT_TABLE, WIDE
from hotrow.config.learning_rate import LearningRate, learning_rate_as_spec
from hotrow.config.parallel import ShardingName
from hotrow.config.section import Section, from_spec, problem
from hotrow.spec import (
    SGD,
    SMALL_START,
    Adagrad,
    Adam,
    Ftrl,
    Momentum,
    RowDtype,
    RowwiseAdagrad,
    TableOptimizer,
)


class InitializerConfig(Section):
    """Initial values of a new row: exactly one of these.

    Attributes:
        uniform: a for values in [-a, a).
        normal: standard deviation of values around 0.
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


OptimizerName = Literal["sgd", "momentum", "adagrad", "rowwise_adagrad", "adam", "ftrl"]
_OPTIMIZERS: dict[str, type[TableOptimizer]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adagrad": Adagrad,
    "rowwise_adagrad": RowwiseAdagrad,
    "adam": Adam,
    "ftrl": Ftrl,
}
_DEFAULT_OPTIMIZER: OptimizerName = "adagrad"
_SPEC_NAMES = {"initial_accumulator": "initial_accumulator_value"}
_OF_ALL = ("learning_rate", "l2", "weight_decay", "clip_row_norm")
_OF_SOME = (
    "initial_accumulator",
    "epsilon",
    "momentum",
    "nesterov",
    "beta_1",
    "beta_2",
    "bias_correction",
    "l1",
    "l2_shrinkage",
    "beta",
)


def options_of(optimizer: str) -> tuple[str, ...]:
    """Returns the keys of `TableSection` that an optimizer accepts."""
    fields = {field.name for field in dataclasses.fields(_OPTIMIZERS[optimizer])}
    return tuple(key for key in (*_OF_ALL, *_OF_SOME) if _SPEC_NAMES.get(key, key) in fields)


class TableSection(Section):
    """Settings of one table.

    Each optimizer takes some of the options, and refuses the others. `hotrow.spec.optimizers`
    describes each.

    Attributes:
        optimizer: the table's own optimizer.
        learning_rate: its step size; unset: the default of `hotrow`'s optimizer of this name.
        l2: factor of the weights that is added to the gradient; `ftrl` has its own meaning.
        weight_decay: share of the weights, times the learning rate, that a step subtracts.
        clip_row_norm: largest norm of a row's gradient.
        initial_accumulator: initial sum of squares of Adagrad and FTRL; see `SMALL_START`.
        epsilon: that of Adagrad and Adam (Keras' default).
        momentum, nesterov: of `momentum`.
        beta_1, beta_2, bias_correction: of `adam`.
        l1, l2_shrinkage, beta: of `ftrl`.
        dtype: type of the weights in memory. state_dtype: type of the optimizer's state.
        initializer: initial values of a new row.
        default_value: every weight of the row that an unknown key reads outside training.
        vocabulary_size: keys lie in [0, vocabulary_size); None: any 64-bit key.
        admission: which keys get a row; None: every key that training looks up.
        expiry: when a row is removed; None: never.
        sharding: how the table is split over several ranks; None: as `parallel.sharding`.
        max_nonfinite_share: largest share of the updates of rows, from one report to the next, that
            may be left out because the row would not be finite; above it the run ends. 0.01: one
            bad sample does not end a run, a diverging one ends within a report. 1: never ends it.
    """

    optimizer: OptimizerName = _DEFAULT_OPTIMIZER
    learning_rate: LearningRate | None = None
    l2: float = Field(default=0.0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    clip_row_norm: float | None = Field(default=None, gt=0)
    initial_accumulator: float = Field(default=SMALL_START, ge=0)
    epsilon: float = Field(default=1e-7, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: bool = False
    beta_1: float = Field(default=0.9, ge=0, lt=1)
    beta_2: float = Field(default=0.999, ge=0, lt=1)
    bias_correction: Literal["row", "global"] = "row"
    l1: float = Field(default=0.0, ge=0)
    l2_shrinkage: float = Field(default=0.0, ge=0)
    beta: float = Field(default=0.0, ge=0)
    dtype: RowDtype = "float32"
    state_dtype: RowDtype = "float32"
    initializer: InitializerConfig = InitializerConfig(uniform=0.05)
    default_value: float = 0.0
    vocabulary_size: int | None = Field(default=None, ge=1)
    admission: AdmissionConfig | None = None
    expiry: ExpiryConfig | None = None
    sharding: ShardingName | None = None
    max_nonfinite_share: float = Field(default=0.01, ge=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _own_learning_rate(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("learning_rate") is None:
            kind = _OPTIMIZERS.get(str(value.get("optimizer", _DEFAULT_OPTIMIZER)), Adagrad)
            return {**value, "learning_rate": kind().learning_rate}
        return value

    @model_validator(mode="after")
    def _options_fit(self) -> TableSection:
        legal = options_of(self.optimizer)
        for option in _OF_SOME:
            if option in self.model_fields_set and option not in legal:
                raise problem(
                    f"{option} is no option of {self.optimizer}; its options are {', '.join(legal)}"
                )
        self.optimizer_as_spec()
        return self

    @model_serializer(mode="wrap")
    def _without_options_of_others(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        others = set(_OF_SOME) - set(options_of(self.optimizer))
        return {key: value for key, value in handler(self).items() if key not in others}

    def optimizer_as_spec(self) -> TableOptimizer:
        """Returns the optimizer in the form of the tables."""
        options = {key: getattr(self, key) for key in options_of(self.optimizer)}
        options["learning_rate"] = learning_rate_as_spec(options["learning_rate"])
        return from_spec(
            _OPTIMIZERS[self.optimizer],
            {_SPEC_NAMES.get(key, key): value for key, value in options.items()},
        )


def inherit_settings(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Returns raw `tables` with every entry completed from the more general ones.

    `default` provides settings that a table omits. Linear tables (`<column>/wide`) start at zero
    and take omitted settings from `wide`, then from `default`. An optimizer is inherited with its
    options, or not at all. The validation refuses entries that are no mappings.
    """
    default = tables.get(DEFAULT_TABLE, {})
    if not isinstance(default, Mapping):
        return dict(tables)
    wide = {**default, "initializer": "zeros"}
    given_wide = tables.get(WIDE, {})
    if isinstance(given_wide, Mapping):
        wide = _inherited(given_wide, wide)
    complete: dict[str, Any] = {DEFAULT_TABLE: dict(default), WIDE: wide}
    for name, settings in tables.items():
        base = wide if name == WIDE or str(name).endswith(f"/{WIDE}") else default
        mapping = isinstance(settings, Mapping)
        complete[name] = _inherited(settings, base) if mapping else settings
    return complete


def _inherited(settings: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    own = base.get("optimizer", _DEFAULT_OPTIMIZER)
    if settings.get("optimizer", own) != own:
        base = {key: value for key, value in base.items() if key not in (*_OF_ALL, *_OF_SOME)}
    return {**base, **settings}
