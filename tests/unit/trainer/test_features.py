"""The preprocessing of dense columns against numpy."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from hotrow.config import DenseColumn
from hotrow.trainer.features import DensePreprocessor

NAN = np.nan
DENSE = np.array([[0, -3, 1], [NAN, 4, 2], [8, NAN, 6], [1e30, -1e-20, NAN]], np.float32)


def columns(*options):
    return tuple(DenseColumn(f"x{i}", t, s) for i, (t, s) in enumerate(options))


def test_log_is_signed_and_a_missing_value_is_zero():
    layer = DensePreprocessor(columns(("log", False), ("log", False), ("none", False)))
    expected = DENSE.copy()
    expected[:, :2] = np.sign(DENSE[:, :2]) * np.log1p(np.abs(DENSE[:, :2]))
    np.testing.assert_allclose(layer(DENSE), np.nan_to_num(expected), rtol=1e-6)


def test_standardized_columns_have_mean_0_and_deviation_1_where_present():
    layer = DensePreprocessor(columns(("none", True), ("log", True), ("none", False)))
    dense = DENSE[:3]
    layer.adapt(dense)
    result = layer(dense).numpy()
    present = ~np.isnan(dense)
    for column in (0, 1):
        values = result[present[:, column], column]
        np.testing.assert_allclose([values.mean(), values.std()], [0, 1], atol=1e-6)
        assert np.all(result[~present[:, column], column] == 0)
    np.testing.assert_array_equal(result[:, 2], dense[:, 2])


def test_a_column_without_values_or_spread_stays_finite():
    layer = DensePreprocessor(columns(("none", True), ("none", True)))
    layer.adapt(np.array([[NAN, 5], [NAN, 5]], np.float32))
    np.testing.assert_array_equal(
        layer(np.array([[2, 5], [NAN, NAN]], np.float32)), [[2, 0], [0, 0]]
    )


def test_no_columns_are_legal():
    layer = DensePreprocessor(())
    assert layer(np.zeros((3, 0), np.float32)).shape == (3, 0)


def test_every_op_is_a_stock_op():
    layer = DensePreprocessor(columns(("log", True), ("none", False)))
    layer.adapt(DENSE[:, :2])
    graph = (
        tf.function(layer.call).get_concrete_function(tf.TensorSpec([None, 2], tf.float32)).graph
    )
    assert not [op.type for op in graph.get_operations() if "otrow" in op.type]
