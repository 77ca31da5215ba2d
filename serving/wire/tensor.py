"""TensorProto to numpy, with the rules of TensorFlow's own `Tensor::FromProto`.

`tf.make_ndarray` differs from them: it reads no string `tensor_content` and raises on surplus
values. Strings are object arrays of bytes.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2, types_pb2

Array = np.ndarray[Any, np.dtype[Any]]

# numpy cannot hold more dimensions; TensorFlow's own limit is 254.
_MAX_RANK = 64

# data type -> (field of TensorProto, numpy type of one entry of the field, numpy type of a value)
_FIELDS: dict[int, tuple[str, Any, Any]] = {
    types_pb2.DT_FLOAT: ("float_val", np.float32, np.float32),
    types_pb2.DT_DOUBLE: ("double_val", np.float64, np.float64),
    types_pb2.DT_INT8: ("int_val", np.int32, np.int8),
    types_pb2.DT_INT16: ("int_val", np.int32, np.int16),
    types_pb2.DT_INT32: ("int_val", np.int32, np.int32),
    types_pb2.DT_UINT8: ("int_val", np.int32, np.uint8),
    types_pb2.DT_UINT16: ("int_val", np.int32, np.uint16),
    types_pb2.DT_INT64: ("int64_val", np.int64, np.int64),
    types_pb2.DT_UINT32: ("uint32_val", np.uint32, np.uint32),
    types_pb2.DT_UINT64: ("uint64_val", np.uint64, np.uint64),
    types_pb2.DT_BOOL: ("bool_val", np.bool_, np.bool_),
    types_pb2.DT_HALF: ("half_val", np.uint16, np.float16),
    types_pb2.DT_BFLOAT16: ("half_val", np.uint16, ml_dtypes.bfloat16),
    types_pb2.DT_COMPLEX64: ("scomplex_val", np.float32, np.complex64),
    types_pb2.DT_COMPLEX128: ("dcomplex_val", np.float64, np.complex128),
}
# Their entries are the bits of a value (half) or its parts (complex), not the value itself.
_BIT_FIELDS = ("half_val", "scomplex_val", "dcomplex_val")


def decode_tensor(proto: tensor_pb2.TensorProto) -> Array:
    """Returns the array of a TensorProto, given as typed fields or as `tensor_content`.

    A short list of values repeats its last one, an empty one means zeros (or empty strings),
    surplus values are ignored.

    Raises:
        ValueError: unknown data type, illegal shape, or content of another size.
    """
    shape = _shape(proto.tensor_shape)
    count = math.prod(shape)
    if proto.dtype == types_pb2.DT_STRING:
        flat = _strings(proto, count)
    elif proto.dtype in _FIELDS:
        flat = _numbers(proto, count)
    else:
        raise ValueError(f"data type {proto.dtype} is not supported")
    return flat.reshape(shape)


def _shape(proto: tensor_shape_pb2.TensorShapeProto) -> tuple[int, ...]:
    shape = tuple(dim.size for dim in proto.dim)
    if proto.unknown_rank or any(size < 0 for size in shape) or len(shape) > _MAX_RANK:
        raise ValueError(f"{shape} is not a legal shape")
    if math.prod(shape) >= 2**63:
        raise ValueError(f"{shape} has too many elements")
    return shape


def _numbers(proto: tensor_pb2.TensorProto, count: int) -> Array:
    field, entry, kind = _FIELDS[proto.dtype]
    if proto.tensor_content:
        if len(proto.tensor_content) != count * np.dtype(kind).itemsize:
            raise ValueError(f"tensor_content has {len(proto.tensor_content)} bytes")
        return np.frombuffer(proto.tensor_content, dtype=kind)
    given = getattr(proto, field)
    values: Array = np.fromiter(given, dtype=entry, count=len(given))
    if field in _BIT_FIELDS:
        whole = len(values) * values.itemsize // np.dtype(kind).itemsize
        values = values[: whole * np.dtype(kind).itemsize // values.itemsize].view(kind)
    else:
        values = values.astype(kind, copy=False)
    return _fill(values, count, np.zeros((), dtype=kind))


def _strings(proto: tensor_pb2.TensorProto, count: int) -> Array:
    if proto.tensor_content:
        given = _split_content(proto.tensor_content, count)
    else:
        given = list(proto.string_val)
    values = np.empty(len(given), dtype=object)
    values[:] = given
    return _fill(values, count, np.array(b"", dtype=object))


def _fill(values: Array, count: int, empty: Array) -> Array:
    """Returns `count` values: cut, or filled up with the last one (or `empty`)."""
    if len(values) >= count:
        return values[:count]
    rest = np.full(count - len(values), values[-1] if len(values) else empty, dtype=values.dtype)
    return np.concatenate([values, rest])


def _split_content(content: bytes, count: int) -> list[bytes]:
    """Returns the strings of a `tensor_content`: all lengths as varints, then all bytes."""
    lengths: list[int] = []
    at = 0
    for _ in range(count):
        length = shift = 0
        while True:
            if at >= len(content) or shift > 63:
                raise ValueError("tensor_content ends inside a length")
            byte = content[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        lengths.append(length)
    if at + sum(lengths) != len(content):
        raise ValueError(f"tensor_content has {len(content)} bytes")
    strings: list[bytes] = []
    for length in lengths:
        strings.append(content[at : at + length])
        at += length
    return strings
