"""Learning rates: numbers, or schedules over the steps of a table, named as in Keras."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hotrow.errors import InvalidArgumentError, nearest
from hotrow.spec.checks import float32, require

KERAS_SCHEDULES: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    name: (frozenset(needed.split()), frozenset([*more.split(), "name"]))
    for name, needed, more in (
        ("CosineDecay", "initial_learning_rate decay_steps", "alpha warmup_target warmup_steps"),
        ("CosineDecayRestarts", "initial_learning_rate first_decay_steps", "t_mul m_mul alpha"),
        ("ExponentialDecay", "initial_learning_rate decay_steps decay_rate", "staircase"),
        ("InverseTimeDecay", "initial_learning_rate decay_steps decay_rate", "staircase"),
        ("PiecewiseConstantDecay", "boundaries values", ""),
        (
            "PolynomialDecay",
            "initial_learning_rate decay_steps",
            "end_learning_rate power cycle",
        ),
    )
}
"""The classes of `keras.optimizers.schedules`: the options that each needs, and its others."""


@dataclass(frozen=True)
class Schedule:
    """A learning rate that changes with the step: a Keras schedule by name.

    A step of a table is a commit of its optimizer: under gradient accumulation, all micro-steps are
    one step. The first step uses the schedule's value at 0.

    Attributes:
        name: a class of `keras.optimizers.schedules`, or the registered name of your own class
            (`keras.saving.register_keras_serializable`).
        options: its arguments by name, as JSON types. Do not change them.

    Raises:
        InvalidArgumentError: an option that Keras' schedule of this name does not have, a missing
            required option, or a value that is no JSON type.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        require(isinstance(self.name, str) and self.name != "", "Schedule.name", self.name, "text")
        options = {str(k): _plain(v, f"{self.name}.{k}") for k, v in self.options.items()}
        object.__setattr__(self, "options", options)
        if self.name not in KERAS_SCHEDULES:
            return  # checked where Keras is imported: hotrow.ops.learning_rates
        needed, more = KERAS_SCHEDULES[self.name]
        for option in options:
            if option not in needed | more:
                legal = sorted(needed | more)
                raise InvalidArgumentError(
                    f"Schedule {self.name} has no option {option!r}{nearest(option, legal)}; "
                    f"legal: {', '.join(legal)}"
                )
        if missing := sorted(needed - options.keys()):
            raise InvalidArgumentError(f"Schedule {self.name} needs {', '.join(missing)}")


LearningRate = float | Schedule


def learning_rate_of(value: object, what: str) -> LearningRate:
    """Returns a learning rate in the form of the core.

    Args:
        value: a number, a `Schedule`, or a schedule object of Keras (any callable with
            `get_config`), which becomes a `Schedule` with the name of its class.
        what: name of the field, for the error.

    Raises:
        InvalidArgumentError: another type, or a number that is not positive.
    """
    if isinstance(value, Schedule):
        return value
    if not isinstance(value, bool) and isinstance(value, numbers.Real):
        require(float32(float(value)) > 0, what, value, "positive")
        return float(value)
    if callable(value) and not isinstance(value, type) and hasattr(value, "get_config"):
        return Schedule(type(value).__name__, value.get_config())
    raise InvalidArgumentError(
        f"{what} is {value!r}; must be a positive number, hotrow.Schedule(name, options) or an "
        f"object of keras.optimizers.schedules ({', '.join(KERAS_SCHEDULES)})"
    )


def _plain(value: Any, what: str) -> Any:
    """Returns `value` in JSON types: numpy's scalars as Python's, tuples as lists."""
    if isinstance(value, list | tuple):
        return [_plain(item, what) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item, what) for key, item in value.items()}
    if callable(getattr(value, "item", None)):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvalidArgumentError(
        f"Schedule option {what} is a {type(value).__name__}; must be a number, a text or a list"
    )
