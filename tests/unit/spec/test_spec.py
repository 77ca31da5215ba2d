"""Descriptions of tables: what is legal, and that they survive as JSON."""

from __future__ import annotations

import dataclasses
import inspect
import json

import keras
import numpy as np
import pytest

import hotrow
from hotrow.errors import InvalidArgumentError
from hotrow.spec import KERAS_SCHEDULES, OPTIMIZERS, table_from_dict, table_to_dict

COSINE = hotrow.Schedule("CosineDecay", {"initial_learning_rate": 0.1, "decay_steps": 5})


def nan():
    return float("nan")


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: hotrow.SGD(0), "SGD.learning_rate is 0; must be positive"),
        (lambda: hotrow.Adam(-0.1), "Adam.learning_rate is -0.1; must be positive"),
        (lambda: hotrow.Adam(nan()), "Adam.learning_rate is nan; must be positive"),
        (lambda: hotrow.Adam(1e300), "Adam.learning_rate is 1e[+]300; must be positive"),
        (lambda: hotrow.Adam(True), "Adam.learning_rate is True; must be a positive number"),
        (lambda: hotrow.Adam("fast"), r"is 'fast'; must be .*hotrow.Schedule.*CosineDecay"),
        (lambda: hotrow.Adam(keras.optimizers.schedules.CosineDecay), "must be a positive number"),
        (lambda: hotrow.Adam(beta_1=1.0), r"Adam.beta_1 is 1.0; must be in \[0, 1\)"),
        (lambda: hotrow.Adam(beta_2=1 - 1e-12), r"Adam.beta_2 is .*; must be in \[0, 1\)"),
        (lambda: hotrow.Adam(epsilon=0.0), "Adam.epsilon is 0.0; must be positive"),
        (lambda: hotrow.Adam(epsilon=1e-60), "Adam.epsilon is 1e-60; must be positive"),
        (lambda: hotrow.Adam(bias_correction="rows"), "'rows'; must be .*did you mean 'row'"),
        (lambda: hotrow.Momentum(momentum=1), r"Momentum.momentum is 1; must be in \[0, 1\)"),
        (lambda: hotrow.Momentum(nesterov=1), "Momentum.nesterov is 1; must be True or False"),
        (lambda: hotrow.RowwiseAdagrad(initial_accumulator_value=-1), "must be 0 or more"),
        (lambda: hotrow.Ftrl(l1=-1), "Ftrl.l1 is -1; must be 0 or more"),
        (lambda: hotrow.Ftrl(initial_accumulator_value=0), "positive unless l2 or beta is"),
        (lambda: hotrow.SGD(l2=-1), "SGD.l2 is -1; must be 0 or more"),
        (lambda: hotrow.SGD(weight_decay=-1), "SGD.weight_decay is -1; must be 0 or more"),
        (lambda: hotrow.SGD(clip_row_norm=0), "SGD.clip_row_norm is 0; must be positive, or None"),
        (
            lambda: hotrow.Admission(0),
            "Admission.occurrences is 0; must be an integer of 1 or more",
        ),
        (lambda: hotrow.Admission(2.0), "Admission.occurrences is 2.0"),
        (lambda: hotrow.Admission(2, "blom"), "did you mean 'bloom'"),
        (lambda: hotrow.Admission(2, "bloom"), "expected_keys is None; must be 1 or more"),
        (lambda: hotrow.Admission(2, "bloom", 9, 1.0), r"error_rate is 1.0; must be in \(0, 1\)"),
        (lambda: hotrow.Admission(2, expected_keys=9), "must be None with filter 'counter'"),
        (lambda: hotrow.Expiry(), "Expiry.after_steps is None; must be given"),
        (lambda: hotrow.Expiry(0), "Expiry.after_steps is 0"),
        (lambda: hotrow.Expiry(rare_count=3), "rare_after_steps is None; must be given with"),
        (lambda: hotrow.Expiry(5, sweep_steps=0), "Expiry.sweep_steps is 0"),
        (lambda: hotrow.TableConfig("t", 1, dtype="bf16"), "dtype is 'bf16'; must be one of"),
        (lambda: hotrow.TableConfig("t", 1, state_dtype=None), "state_dtype is None; must be one"),
        (lambda: hotrow.TableConfig("t", 1, vocabulary_size=0), "vocabulary_size is 0; must be 1"),
        (
            lambda: hotrow.TableConfig("t", 1, admission=3),
            r"admission is 3; must be one of hotrow.Admission\(...\)",
        ),
        (
            lambda: hotrow.TableConfig("t", 1, optimizer=hotrow.Uniform()),
            r"must be one of hotrow.SGD\(...\), hotrow.Momentum",
        ),
        (lambda: hotrow.Schedule("CosineDecay", {}), "needs decay_steps, initial_learning_rate"),
        (
            lambda: hotrow.Schedule("CosineDecay", {"decay_step": 1}),
            "no option 'decay_step' .did you mean 'decay_steps'.{2}; legal: alpha,",
        ),
        (lambda: hotrow.Schedule("Mine", {"x": object()}), "Mine.x is a object; must be a number"),
    ],
)
def test_what_is_not_legal_is_refused_in_one_line(make, line):
    with pytest.raises(InvalidArgumentError, match=line) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_descriptions_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        hotrow.Adam().beta_1 = 0.5
    assert len({hotrow.Adam(COSINE), hotrow.Adam(COSINE), hotrow.Adam()}) == 2


def test_a_schedule_of_keras_becomes_its_name_and_arguments():
    given = keras.optimizers.schedules.CosineDecay(np.float32(0.5), 100, alpha=0.25)
    kept = hotrow.Adam(given).learning_rate
    assert kept.name == "CosineDecay"
    assert kept.options["initial_learning_rate"] == 0.5
    assert kept.options["alpha"] == 0.25
    assert json.loads(json.dumps(kept.options)) == kept.options
    assert hotrow.Adam(kept) == hotrow.Adam(given)


def test_the_schedules_are_those_of_keras_with_their_arguments():
    found = {}
    for name in dir(keras.optimizers.schedules):
        schedule = getattr(keras.optimizers.schedules, name)
        if not isinstance(schedule, type) or name == "LearningRateSchedule":
            continue
        arguments = list(inspect.signature(schedule).parameters.values())
        found[name] = (
            {a.name for a in arguments if a.default is a.empty},
            {a.name for a in arguments if a.default is not a.empty},
        )
    assert found == KERAS_SCHEDULES


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("rate", [0.25, COSINE], ids=["number", "schedule"])
def test_a_table_survives_as_json(optimizer, rate):
    table = hotrow.TableConfig(
        "t",
        4,
        optimizer=optimizer(rate, weight_decay=0.1, clip_row_norm=2.0),
        dtype="bfloat16",
        state_dtype="float16",
        admission=hotrow.Admission(3, "bloom", 1000, 0.05),
        expiry=hotrow.Expiry(5, 3, 2, 10),
    )
    assert table_from_dict(json.loads(json.dumps(table_to_dict(table)))) == table


def test_a_table_that_an_older_version_wrote_is_read():
    older = table_to_dict(hotrow.TableConfig("t", 4, optimizer=hotrow.SGD(0.5)))
    for new in ("dtype", "state_dtype", "admission", "expiry"):
        del older[new]
    older["optimizer"] = {"kind": "SGD", "learning_rate": 0.5}
    assert table_from_dict(older) == hotrow.TableConfig("t", 4, optimizer=hotrow.SGD(0.5))
