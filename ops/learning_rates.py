"""Learning rates of tables in the form of the ops: constants, or schedules at the table's step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from hotrow.errors import InvalidArgumentError
from hotrow.ops import library
from hotrow.ops.placement import CPU
from hotrow.ops.table import Table
from hotrow.spec import KERAS_SCHEDULES, Ftrl, LearningRate, Schedule, TableConfig


def keras_learning_rate(learning_rate: LearningRate) -> Any:
    """Returns the learning rate for a Keras optimizer: the number, or a Keras schedule.

    Raises:
        InvalidArgumentError: Keras has no schedule of that name, or refuses its options.
    """
    if not isinstance(learning_rate, Schedule):
        return learning_rate
    name = learning_rate.name
    made = _schedule_class(name)
    try:
        schedule = made.from_config(dict(learning_rate.options))
        first = float(schedule(0))
    except (TypeError, ValueError) as err:
        raise InvalidArgumentError(f"Schedule {name}: {' '.join(str(err).split())}") from err
    if not (math.isfinite(first) and first >= 0):
        raise InvalidArgumentError(f"Schedule {name} starts with {first}; must be 0 or more")
    return schedule


def _schedule_class(name: str) -> Any:
    if name in KERAS_SCHEDULES:
        return getattr(keras.optimizers.schedules, name)
    registered = keras.saving.get_custom_objects()
    # `name` is a class name, as in a `Schedule` made from an object, or "package>name".
    found = {
        made
        for key, made in registered.items()
        if name in (key, getattr(made, "__name__", None))
        and isinstance(made, type)
        and issubclass(made, keras.optimizers.schedules.LearningRateSchedule)
    }
    if len(found) != 1:
        why = "is not known" if not found else "is the name of several registered classes"
        raise InvalidArgumentError(
            f"Schedule {name!r} {why}; legal: {', '.join(KERAS_SCHEDULES)}, and subclasses of "
            "LearningRateSchedule that keras.saving.register_keras_serializable registered "
            "(as 'package>name')"
        )
    return found.pop()


class LearningRates:
    """The learning rates of the tables of a layer, each at its table's step; on the host.

    Args:
        tables: in the order of the layer.

    Raises:
        InvalidArgumentError: see `keras_learning_rate`.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        # Handles, not tables: graphs keep these, and a table must be freed with its layer.
        self._handles = [table.handle for table in tables]
        self._configs = [table.config for table in tables]
        self._rates = [keras_learning_rate(c.optimizer.learning_rate) for c in self._configs]

    def __call__(self, checked: bool = True) -> Any:
        """Returns float32 [T]; a constant tensor unless a table has a schedule.

        Args:
            checked: refuse rates that are not legal. An evaluation after the last step must not
                fail because of a step that is never taken.

        Raises:
            tf.errors.InvalidArgumentError: a schedule returns NaN, a negative rate, or 0 for FTRL,
                which divides by it.
        """
        with tf.device(CPU):
            if not any(callable(rate) for rate in self._rates):
                return tf.constant(self._rates, tf.float32)
            tables = zip(self._handles, self._configs, self._rates, strict=True)
            return tf.stack(
                [
                    _now(handle, config, rate, checked) if callable(rate) else rate
                    for handle, config, rate in tables
                ]
            )

    def unscheduled(self) -> Any:
        """Returns float32 [T] without calling schedules, for ops that apply no optimizer."""
        rates = [0.0 if callable(rate) else rate for rate in self._rates]
        with tf.device(CPU):
            return tf.constant(rates, tf.float32)


def _now(handle: str, config: TableConfig, schedule: Any, checked: bool) -> Any:
    step = library.load().hotrow_table_step(table=handle)
    rate = tf.cast(schedule(step), tf.float32)
    if not checked:
        return rate
    divides = isinstance(config.optimizer, Ftrl)
    tf.debugging.Assert(
        rate > 0 if divides else rate >= 0,
        [
            f"table {config.name}: its learning-rate schedule gives",
            rate,
            f"; must be {'positive' if divides else '0 or more'}; at step",
            step,
        ],
    )
    return rate
