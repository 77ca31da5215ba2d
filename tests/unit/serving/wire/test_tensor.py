"""TensorProto to numpy and back, against TensorFlow's own functions."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as arrays
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2, types_pb2
from typed_tensors import typed_tensor

from hotrow.serving.wire.tensor import decode_tensor

NUMBERS = st.sampled_from(
    ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16"]
)


@settings(max_examples=150, deadline=None)
@given(array=NUMBERS.flatmap(lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0))))
def test_numbers_survive_typed_fields_and_tensor_content(array: Any) -> None:
    dtype = tf.as_dtype(array.dtype).as_datatype_enum
    typed = typed_tensor(array, dtype)
    assert typed.tensor_content == b""
    for proto in (typed, tf.make_tensor_proto(array)):
        back = decode_tensor(proto)
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
    np.testing.assert_array_equal(tf.make_ndarray(typed), array)


@settings(max_examples=50, deadline=None)
@given(words=st.lists(st.binary(max_size=300), min_size=1, max_size=20))
def test_strings_survive_typed_fields_and_tensor_content(words: list[bytes]) -> None:
    array = np.array(words, dtype=object)
    typed = typed_tensor(array, types_pb2.DT_STRING)
    assert decode_tensor(typed).tolist() == words
    content = _string_content(words)
    packed = tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING, tensor_shape=typed.tensor_shape, tensor_content=content
    )
    assert decode_tensor(packed).tolist() == words


def test_bfloat16_survives() -> None:
    array = np.array([1.5, -2.0, np.inf], ml_dtypes.bfloat16)
    back = decode_tensor(typed_tensor(array, types_pb2.DT_BFLOAT16))
    assert back.dtype == array.dtype
    assert back.tolist() == array.tolist()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([], [0.0, 0.0, 0.0], id="none means zeros"),
        pytest.param([1.0, 2.0], [1.0, 2.0, 2.0], id="too few repeat the last"),
        pytest.param([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0], id="too many are ignored"),
    ],
)
def test_a_list_of_another_length_is_filled_or_cut(
    values: list[float], expected: list[float]
) -> None:
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=values)
    proto.tensor_shape.dim.add(size=3)
    assert decode_tensor(proto).tolist() == expected


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"dtype": types_pb2.DT_INVALID}, id="no data type"),
        pytest.param({"dtype": 4711}, id="an unknown data type"),
        pytest.param({"dtype": types_pb2.DT_RESOURCE}, id="a resource"),
        pytest.param({"dtype": types_pb2.DT_FLOAT_REF}, id="a reference"),
        pytest.param({"dtype": types_pb2.DT_INT64, "tensor_content": b"1234567"}, id="7 bytes"),
        pytest.param({"dtype": types_pb2.DT_STRING, "tensor_content": b"\x02a"}, id="a short text"),
        pytest.param({"dtype": types_pb2.DT_STRING, "tensor_content": b"\xff"}, id="half a length"),
        pytest.param({"dtype": types_pb2.DT_FLOAT, "sizes": [-1]}, id="a negative size"),
        pytest.param({"dtype": types_pb2.DT_FLOAT, "sizes": [2**62, 8]}, id="a huge size"),
        pytest.param({"dtype": types_pb2.DT_FLOAT, "sizes": [1] * 65}, id="65 dimensions"),
    ],
)
def test_a_tensor_is_refused_that_has(fields: dict[str, Any]) -> None:
    sizes = fields.pop("sizes", [])
    proto = tensor_pb2.TensorProto(**fields)
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    with pytest.raises(ValueError, match=r"\S"):
        decode_tensor(proto)


def _string_content(words: list[bytes]) -> bytes:
    """Returns the bytes of TensorFlow's `EncodeStringList`."""
    content = b""
    for word in words:
        length = len(word)
        while length >= 0x80:
            content += bytes([length & 0x7F | 0x80])
            length >>= 7
        content += bytes([length])
    return content + b"".join(words)
