"""Tables train as a float64 model in numpy says, for every optimizer, row type and pooling.

float32: after 200 random steps every weight is within 16 * 2^-24 of the largest weight, about a
random walk of 200 roundings. 16 bits: every step of every value ends at one of the neighbours of
the exact value, and is right on average.

ops/native/tests/kernels_test.cc shows each update of every optimizer, option and type against
float64. Here a few go through layer, ops and tables in `make test`; the whole matrix is slow.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from unit.ops.numpy_optimizers import (
    NumpyTable,
    new_state,
    options_id,
    scalars_of,
    updated,
    vectors_of,
)
from unit.ops.pooled_tables import (
    DIM,
    FEATURES,
    KEYS,
    Batch,
    arrays_of,
    first_weights,
    gradients_of,
    layer_of,
    lines_of,
    pooled_of,
    step_of,
)

import hotrow

STEPS = 200
EPSILON = 2.0**-24  # half a unit in the last place of 1, as float32
BOUND = 16 * EPSILON  # about sqrt(200) of them; 10.5 were measured

OPTIMIZERS = [
    hotrow.SGD(0.1),
    hotrow.SGD(0.1, l2=0.05, weight_decay=0.02, clip_row_norm=0.7),
    hotrow.Momentum(0.05),
    hotrow.Momentum(0.05, 0.8, nesterov=True, l2=0.05, weight_decay=0.02, clip_row_norm=0.7),
    hotrow.Adagrad(0.1),
    hotrow.Adagrad(0.1, 0.0, 1e-3, l2=0.05, weight_decay=0.02, clip_row_norm=0.7),
    hotrow.RowwiseAdagrad(0.1),
    hotrow.RowwiseAdagrad(0.1, 0.5, 1e-3, l2=0.05, weight_decay=0.02, clip_row_norm=0.7),
    hotrow.Adam(0.01),
    hotrow.Adam(0.01, bias_correction="global"),
    hotrow.Adam(0.01, 0.7, 0.9, 1e-4, l2=0.05, weight_decay=0.1, clip_row_norm=0.7),
    hotrow.Ftrl(0.1),
    hotrow.Ftrl(0.1, 0.5, 0.3, 0.2, 0.1, 0.4, weight_decay=0.02, clip_row_norm=0.7),
]
# In `make test`: the plainest, one with most options a kind of state, one of them in backward.
QUICK = {(0, "step"), (3, "backward"), (7, "step"), (10, "step"), (12, "step")}


def slow_unless(quick, *values, name):
    return pytest.param(*values, id=name, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(
    ("optimizer", "update"),
    [
        slow_unless((i, update) in QUICK, one, update, name=f"{options_id(one)}-{update}")
        for i, one in enumerate(OPTIMIZERS)
        for update in ("step", "backward")
    ],
)
def test_200_random_steps_equal_numpy(optimizer, update):
    layer = layer_of(update, optimizer=optimizer)
    models = {name: NumpyTable(optimizer, rows) for name, rows in first_weights(layer).items()}
    step, random = step_of(layer), np.random.default_rng(1)
    largest = {name: np.abs(model.weights).max() for name, model in models.items()}
    for _ in range(STEPS):
        batch = Batch(random)
        pooled = step(batch)
        for name, (table, combiner, _) in FEATURES.items():
            expected = pooled_of(batch, name, combiner, models[table].weights)
            # Up to three rows are added up, each with a factor of at most 2.
            bound = 6 * BOUND * largest[table]
            np.testing.assert_allclose(pooled[name], expected, rtol=0, atol=bound)
        for name, model in models.items():
            model.apply(*gradients_of(batch, name))
            largest[name] = max(largest[name], np.abs(model.weights).max())
    for name, model in models.items():
        lines = lines_of(layer.tables[name])
        assert layer.tables[name].step == STEPS
        assert set(lines) == set(KEYS.tolist())
        for key, (weights, vectors, scalars) in lines.items():
            row = KEYS.tolist().index(key)
            bound = BOUND * largest[name]
            np.testing.assert_allclose(weights, model.weights[row], rtol=0, atol=bound)
            for state_name, values in zip(vectors_of(optimizer), vectors, strict=True):
                bound = BOUND * np.abs(model.state[state_name]).max()
                expected = model.state[state_name][row]
                np.testing.assert_allclose(values, expected, rtol=0, atol=bound)
            for state_name, value in zip(scalars_of(optimizer), scalars, strict=True):
                expected = model.state[state_name][row, 0]
                np.testing.assert_allclose(value, expected, rtol=BOUND)


TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
SMALL = [
    hotrow.SGD(0.1, weight_decay=0.02),
    hotrow.Momentum(0.05, 0.8, nesterov=True, l2=0.05),
    hotrow.Adagrad(0.1),
    hotrow.RowwiseAdagrad(0.1),
    hotrow.Adam(0.01),
    hotrow.Ftrl(0.1, 0.5, 0.01, 0.2),
]


def neighbours(values, dtype, slack):
    """Returns the largest stored value <= values - slack and the smallest >= values + slack."""
    kind = TYPES[dtype]
    down, up = values - slack, values + slack
    low, high = down.astype(kind), up.astype(kind)
    below, above = low.astype(np.float64) > down, high.astype(np.float64) < up
    minus, plus = np.asarray(-np.inf, kind), np.asarray(np.inf, kind)
    low = np.where(below, np.nextafter(low, minus), low)
    high = np.where(above, np.nextafter(high, plus), high)
    return low.astype(np.float64), high.astype(np.float64)


@pytest.mark.parametrize(
    ("dtype", "state_dtype", "update"),
    [
        ("bfloat16", "float32", "step"),
        ("float16", "float32", "backward"),
        ("float32", "bfloat16", "backward"),
        ("bfloat16", "bfloat16", "backward"),
        ("float16", "float16", "step"),
    ],
)
@pytest.mark.parametrize(
    "optimizer",
    [slow_unless(isinstance(one, hotrow.Adam), one, name=options_id(one)) for one in SMALL],
)
def test_every_value_of_200_random_steps_is_a_neighbour_of_the_exact_one(
    optimizer, dtype, state_dtype, update
):
    features = {name: FEATURES[name] for name in ("none", "sum", "weighted_mean", "sqrtn")}
    layer = layer_of(update, features, optimizer=optimizer, dtype=dtype, state_dtype=state_dtype)
    step, random = step_of(layer, features=features), np.random.default_rng(2)
    drift = variance = 0.0
    for name, table in layer.tables.items():
        table.lookup(KEYS, insert=True)
        start = lines_of(table)
        first = first_weights(layer)[name].astype(TYPES[dtype])
        for row, key in enumerate(KEYS.tolist()):
            np.testing.assert_array_equal(start[key][0], first[row].astype(np.float32))
    before = {name: as_arrays(table, optimizer) for name, table in layer.tables.items()}
    for number in range(1, STEPS + 1):
        batch = Batch(random, features)
        step(batch)
        for name, table in layer.tables.items():
            after = as_arrays(table, optimizer)
            gradients, touched = gradients_of(batch, name, features)
            exact = {k: v.copy() for k, v in before[name].items()}
            state = {k: v[touched] for k, v in exact.items() if k != "weights"}
            weights, state = updated(
                optimizer, exact["weights"][touched], state, gradients[touched], number
            )
            for part, values in {"weights": weights, **state}.items():
                own = after[part][touched]
                kind = dtype if part == "weights" else state_dtype
                kind = kind if part not in scalars_of(optimizer) else "float32"
                reach = np.maximum(np.abs(values), np.abs(before[name][part][touched]))
                low, high = neighbours(values, kind, 64 * EPSILON * np.maximum(reach, 1e-3))
                assert ((low <= own) & (own <= high)).all(), (number, name, part)
                if kind != "float32":
                    between = (low < values) & (values < high)
                    gap = (high - low)[between]
                    drift += ((own - values)[between] / gap).sum()
                    chance = (values - low)[between] / gap  # to be rounded up
                    variance += (chance * (1 - chance)).sum()
                untouched = before[name][part][~touched]
                np.testing.assert_array_equal(after[part][~touched], untouched)
            before[name] = after
    # In units of the gaps, rounding is right on average: within 5 standard errors.
    assert abs(drift) <= 5 * np.sqrt(variance)
    assert variance > 100 or "16" not in dtype


def as_arrays(table, optimizer):
    """Returns weights and state by name, float64 [K, D] or [K, 1], in the order of KEYS."""
    keys, weights, vectors, scalars = arrays_of(table)
    order = np.argsort(keys)[np.argsort(np.argsort(KEYS))]
    np.testing.assert_array_equal(keys[order], KEYS)
    arrays = {"weights": weights[order].astype(np.float64)}
    for name, values in zip(vectors_of(optimizer), vectors, strict=True):
        arrays[name] = values[order].astype(np.float64)
    for name, values in zip(scalars_of(optimizer), scalars, strict=True):
        arrays[name] = values[order, np.newaxis].astype(np.float64)
    assert arrays.keys() - {"weights"} == new_state(optimizer, 1, DIM).keys()
    return arrays
