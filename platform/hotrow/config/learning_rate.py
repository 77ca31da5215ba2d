"""A learning rate: a number, or a schedule over the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from hotrow.config.section import Section, problem
from hotrow.errors import nearest
from hotrow.spec import KERAS_SCHEDULES, Schedule

ScheduleName = Literal[
    "cosine_decay",
    "cosine_decay_restarts",
    "exponential_decay",
    "inverse_time_decay",
    "piecewise_constant_decay",
    "polynomial_decay",
]


def _class_name(schedule: str) -> str:
    return "".join(word.capitalize() for word in schedule.split("_"))


class ScheduleConfig(Section):
    """A schedule of `keras.optimizers.schedules`; unset arguments have Keras' defaults.

    Each schedule takes some of the options; it refuses the others.

    Attributes:
        schedule: Keras' class, in snake case.
        initial_learning_rate: rate of the first step; with a warm-up, of its start.
        decay_steps: steps of the decay, or of one factor `decay_rate`.
        first_decay_steps: steps of the first period of `cosine_decay_restarts`.
        decay_rate: factor of `exponential_decay`, slope of `inverse_time_decay`.
        staircase: decay in jumps every `decay_steps`.
        alpha: final rate of a cosine, as a share of the initial rate.
        warmup_target: rate at the end of a linear warm-up. warmup_steps: its length.
        t_mul: factor of the length of each next period. m_mul: factor of its initial rate.
        end_learning_rate: final rate of `polynomial_decay`. power: of its polynomial. cycle: start
            again beyond `decay_steps`.
        boundaries: steps at which `piecewise_constant_decay` takes its next value.
        values: its rates, one more than boundaries.
    """

    schedule: ScheduleName
    initial_learning_rate: float | None = Field(default=None, ge=0)
    decay_steps: int | None = Field(default=None, ge=1)
    first_decay_steps: int | None = Field(default=None, ge=1)
    decay_rate: float | None = Field(default=None, gt=0)
    staircase: bool | None = None
    alpha: float | None = Field(default=None, ge=0)
    warmup_target: float | None = Field(default=None, gt=0)
    warmup_steps: int | None = Field(default=None, ge=1)
    t_mul: float | None = Field(default=None, gt=0)
    m_mul: float | None = Field(default=None, gt=0)
    end_learning_rate: float | None = Field(default=None, ge=0)
    power: float | None = Field(default=None, gt=0)
    cycle: bool | None = None
    boundaries: tuple[int, ...] | None = Field(default=None, min_length=1)
    values: tuple[Annotated[float, Field(ge=0)], ...] | None = Field(default=None, min_length=2)

    @model_validator(mode="after")
    def _options_fit(self) -> ScheduleConfig:
        needed, more = KERAS_SCHEDULES[_class_name(self.schedule)]
        legal = sorted((needed | more) - {"name"})
        given = self.options()
        for option in given:
            if option not in legal:
                raise problem(
                    f"{option} is no option of {self.schedule}{nearest(option, legal)}; legal: "
                    f"{', '.join(legal)}"
                )
        for option in sorted(needed - given.keys()):
            raise problem(f"{self.schedule} needs {option}; set it")
        if self.boundaries is not None and self.values is not None:
            if list(self.boundaries) != sorted(set(self.boundaries)):
                raise problem(f"boundaries {list(self.boundaries)} must rise")
            if len(self.values) != len(self.boundaries) + 1:
                raise problem(
                    f"{len(self.boundaries)} boundaries need {len(self.boundaries) + 1} values, "
                    f"{len(self.values)} are given"
                )
        return self

    @model_serializer(mode="wrap")
    def _only_the_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if value is not None}

    def options(self) -> dict[str, Any]:
        """Returns the options that are set."""
        fields = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: value for name, value in fields if name != "schedule" and value is not None}

    def as_spec(self) -> Schedule:
        """Returns the schedule in the form of the tables."""
        return Schedule(_class_name(self.schedule), self.options())


def _kind(value: Any) -> str:
    return "<schedule>" if isinstance(value, Mapping | ScheduleConfig) else "<number>"


# Errors omit tags in angle brackets from their path.
LearningRate = Annotated[
    Annotated[float, Field(gt=0), Tag("<number>")] | Annotated[ScheduleConfig, Tag("<schedule>")],
    Discriminator(_kind),
]


def learning_rate_as_spec(value: float | ScheduleConfig) -> float | Schedule:
    """Returns a learning rate in the form of tables and `hotrow.ops.learning_rates`."""
    return value.as_spec() if isinstance(value, ScheduleConfig) else value
