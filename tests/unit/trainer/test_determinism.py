"""TensorFlow's determinism is on inside of a run and as it was outside of it."""

from __future__ import annotations

import pytest
import tensorflow as tf
from tensorflow.python.framework.config import is_op_determinism_enabled

from hotrow.trainer.determinism import op_determinism


def test_the_switch_is_on_inside_and_put_back():
    assert not is_op_determinism_enabled()
    with op_determinism(True):
        assert is_op_determinism_enabled()
        with op_determinism(True):
            pass
        assert is_op_determinism_enabled()
    assert not is_op_determinism_enabled()
    with op_determinism(False):
        assert not is_op_determinism_enabled()


def test_an_op_whose_result_may_differ_is_refused_inside():
    with op_determinism(True), pytest.raises(RuntimeError, match="determinism"):
        tf.random.uniform([2])
    tf.random.uniform([2])
