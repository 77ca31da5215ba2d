"""What an update writes to 16 bits is right on average; rounding to nearest would not move."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from unit.ops.pooled_tables import lines_of
from unit.ops.small_layer import apply

import hotrow

ROWS, DIM, STEPS = 4000, 8, 50
KEYS = np.arange(ROWS, dtype=np.int64)


def trained(update, seed=3, **options):
    """Returns the table after 50 steps with gradient 1 for every weight of every row."""
    import keras

    table = hotrow.TableConfig("t", DIM, combiner="sum", **options)
    layer = hotrow.DistributedEmbedding(
        [hotrow.FeatureConfig("f", table)], seed=seed, update=update
    )
    optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer({"f": tf.constant(KEYS)}, training=True)["f"])
        variables = layer.trainable_variables
        apply(optimizer, variables, tape.gradient(loss, variables))

    for _ in range(STEPS):
        step()
    return layer.tables["t"]


def check_mean(values, expected, start, gap):
    """values [R, D]: on average as expected; spread as rounding by chance spreads them."""
    error = abs(values.mean() - expected)
    standard_error = values.std() / np.sqrt(values.size)
    assert error < 5 * standard_error, (error, standard_error)
    # Rounding to nearest leaves every value where it started: this test would see it.
    assert abs(start - expected) > 50 * standard_error
    # A step of share p of the gap adds p (1 - p) gap^2 to the variance.
    share = abs(expected - start) / STEPS / gap
    variance = STEPS * share * (1 - share) * gap**2
    np.testing.assert_allclose(values.var(), variance, rtol=0.05)
    # The values of a row are rounded independently of each other.
    np.testing.assert_allclose(values.mean(axis=1).var() * DIM, variance, rtol=0.15)


@pytest.mark.parametrize("update", ["step", "backward"])
@pytest.mark.parametrize(("dtype", "gap"), [("bfloat16", 2.0**-7), ("float16", 2.0**-10)])
def test_weights_drift_as_they_should(dtype, gap, update):
    rate = gap / 20
    table = trained(
        update, dtype=dtype, optimizer=hotrow.SGD(rate), initializer=hotrow.Constant(1.5)
    )
    weights = np.array([line[0] for line in lines_of(table).values()], np.float64)
    expected = 1.5 - STEPS * float(np.float32(rate))
    check_mean(weights, expected, 1.5, gap)


@pytest.mark.parametrize(("state_dtype", "gap"), [("bfloat16", 2.0**-7), ("float16", 2.0**-10)])
def test_state_drifts_as_it_should(state_dtype, gap):
    # The clip makes the gradient of a weight sqrt(gap / 20), so that a grows by gap / 20 a step.
    clip = float(np.sqrt(DIM * gap / 20))
    optimizer = hotrow.Adagrad(0.1, 1.25, clip_row_norm=clip)
    table = trained("backward", state_dtype=state_dtype, optimizer=optimizer)
    sums = np.array([line[1][0] for line in lines_of(table).values()], np.float64)
    check_mean(sums, 1.25 + STEPS * gap / 20, 1.25, gap)


def test_the_same_seed_rounds_the_same_and_another_one_otherwise():
    options = {"dtype": "bfloat16", "optimizer": hotrow.SGD(1e-3)}
    options["initializer"] = hotrow.Constant(1.5)
    digests = [trained(update, **options).digest() for update in ("step", "backward")]
    assert digests[0] == digests[1]
    assert trained("step", seed=4, **options).digest() != digests[0]


def test_float32_rows_are_not_rounded_by_chance():
    options = {"optimizer": hotrow.SGD(1e-3), "initializer": hotrow.Constant(1.5)}
    weights = np.array([line[0] for line in lines_of(trained("step", **options)).values()])
    assert len(np.unique(weights)) == 1
