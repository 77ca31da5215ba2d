"""Strings to keys: the core, TensorFlow and published values agree."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow import _native
from hotrow.ops.strings import fingerprint_keys


@settings(deadline=None)
@given(st.lists(st.binary(max_size=80), max_size=20), st.binary(max_size=5))
def test_the_core_and_the_graph_give_the_same_keys(values, prefix):
    expected = _native.fingerprint64(values, prefix)
    offsets = np.cumsum([0, *map(len, values)])
    data = np.frombuffer(b"".join(values), np.uint8)
    for dtype in (np.int32, np.int64):
        got = _native.fingerprint64_arrow(offsets.astype(dtype), data, prefix)
        np.testing.assert_array_equal(got, expected)
    in_graph = fingerprint_keys(prefix, tf.constant(values, tf.string))
    np.testing.assert_array_equal(in_graph.numpy(), expected)


def test_a_value_keeps_its_key_for_ever():
    # Keys are stored in tables and stores: a change of the function would lose every row.
    assert _native.fingerprint64([b"abc", b""], b"C1\x1f").tolist() == [
        3045736723574957085,
        1219731989464491744,
    ]


def test_offsets_outside_of_the_data_are_refused():
    with pytest.raises(ValueError, match="offsets must ascend"):
        _native.fingerprint64_arrow(np.array([0, 5], np.int64), np.zeros(4, np.uint8), b"")
    with pytest.raises(TypeError, match="must be bytes"):
        _native.fingerprint64(["text"], b"")
