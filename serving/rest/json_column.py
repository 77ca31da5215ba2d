"""JSON values of one input to its tensor, with the rules of TF Serving's `util/json_tensor.cc`."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import numpy as np
from tensorflow.core.framework import tensor_pb2, types_pb2

from hotrow.serving.rest.json_text import BYTES_IN_STRING, kind_name, shown
from hotrow.serving.wire.status import Code, RequestError, invalid

# data type -> (field, least, greatest); the 8 and 16 bit ones are checked as int32 only.
_INT32 = ("int_val", -(2**31), 2**31 - 1)
_INTEGERS: dict[int, tuple[str, int, int]] = {
    types_pb2.DT_INT8: _INT32,
    types_pb2.DT_INT16: _INT32,
    types_pb2.DT_INT32: _INT32,
    types_pb2.DT_UINT8: _INT32,
    types_pb2.DT_INT64: ("int64_val", -(2**63), 2**63 - 1),
    types_pb2.DT_UINT32: ("uint32_val", 0, 2**32 - 1),
    types_pb2.DT_UINT64: ("uint64_val", 0, 2**64 - 1),
}
_FIELDS = {
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_STRING: "string_val",
    types_pb2.DT_BOOL: "bool_val",
} | {dtype: field for dtype, (field, _, _) in _INTEGERS.items()}

# Data types whose values become an array at once: all in range, all of one JSON kind.
_ARRAYS: dict[int, type[np.generic]] = {
    types_pb2.DT_FLOAT: np.float32,
    types_pb2.DT_DOUBLE: np.float64,
    types_pb2.DT_INT32: np.int32,
    types_pb2.DT_INT64: np.int64,
}


def is_base64(value: Any) -> bool:
    """Returns whether a value is `{"b64": "..."}`, which stands for bytes."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def read_base64(value: Any) -> bytes:
    """Returns the bytes of `{"b64": "..."}`.

    Raises:
        RequestError: INVALID_ARGUMENT when it is another object or not base64.
    """
    if not is_base64(value):
        raise invalid(f"JSON Value: {shown(value)} not formatted correctly for base64 data")
    text = value["b64"].rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as err:
        raise invalid("Unable to base64 decode") from err


class Column:
    """The values of one input, added row by row; every row has the shape of the first one."""

    def __init__(self, dtype: int) -> None:
        self._dtype = dtype
        self._values: list[Any] = []
        self._shape: list[int] | None = None

    def add(self, value: Any) -> None:
        """Adds the next row's value or nested list.

        Raises:
            RequestError: INVALID_ARGUMENT for an uneven list, another shape than the first row's
                or a value of another type, UNIMPLEMENTED for a data type without a JSON form.
        """
        shape = _shape_of(value)
        before = len(self._values)
        self._fill(value, 0, shape)
        if self._shape is None:
            self._shape = shape
            return
        expected, got = math.prod(self._shape), len(self._values) - before
        if expected != got:
            raise invalid(f"Expecting tensor size: {expected} but got: {got}")
        if self._shape != shape:
            raise invalid(
                f"Expecting shape {_shape_text(self._shape)} but got: {_shape_text(shape)}"
            )

    def proto(self, rows: int | None) -> tensor_pb2.TensorProto:
        """Returns the tensor, with a 0th dimension of `rows` unless that is None."""
        proto = tensor_pb2.TensorProto(dtype=self._dtype)
        for size in [*([] if rows is None else [rows]), *(self._shape or [])]:
            proto.tensor_shape.dim.add(size=size)
        if self._values and self._dtype in _ARRAYS:
            proto.tensor_content = _as_array(self._values, _ARRAYS[self._dtype]).tobytes()
        elif self._values:
            getattr(proto, _FIELDS[self._dtype]).extend(self._values)
        return proto

    def _fill(self, value: Any, level: int, shape: list[int]) -> None:
        if not isinstance(value, list):
            if level != len(shape):
                raise invalid(
                    f"JSON Value: {shown(value)} found at incorrect level: {level + 1} in the "
                    f"JSON DOM. Expected at level: {len(shape)}"
                )
            self._values.append(_leaf(value, self._dtype))
            return
        if level >= len(shape):
            raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
        if len(value) != shape[level]:
            raise invalid(
                f"Encountered list at unexpected size: {len(value)} at level: {level} "
                f"expected size: {shape[level]}"
            )
        if level + 1 == len(shape) and (entries := _leaves(value, self._dtype)) is not None:
            self._values.extend(entries)
            return
        for item in value:
            self._fill(item, level + 1, shape)


def _as_array(values: list[Any], dtype: type[np.generic]) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):  # infinite, as a float
        return np.array(values).astype(dtype)


def _leaves(values: list[Any], dtype: int) -> list[Any] | None:
    """Returns the results of `_leaf` for many plain values; None: call it for each value."""
    kinds = set(map(type, values))
    if dtype in (types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE):
        if kinds <= {float}:
            return values
        if kinds <= {float, int}:
            try:
                return [float(value) for value in values]
            except OverflowError:
                return None
    elif dtype in _INTEGERS and kinds == {int}:
        _, least, greatest = _INTEGERS[dtype]
        if least <= min(values) and max(values) <= greatest:
            return values
    elif dtype == types_pb2.DT_BOOL and kinds == {bool}:
        return values
    return None


def _leaf(value: Any, dtype: int) -> Any:
    """Returns a value as an entry of its TensorProto field.

    Raises:
        RequestError: INVALID_ARGUMENT for a value of another type, UNIMPLEMENTED for a data type
            without a JSON form.
    """
    if dtype not in _FIELDS:
        raise RequestError(
            Code.UNIMPLEMENTED, f"Conversion of JSON Value: {shown(value)} to type: {_name(dtype)}"
        )
    is_bool = isinstance(value, bool)
    if dtype in (types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE):
        if isinstance(value, int | float) and not is_bool:
            return _as_float(value)
    elif dtype == types_pb2.DT_BOOL:
        if is_bool:
            return value
    elif dtype == types_pb2.DT_STRING:
        if isinstance(value, dict):
            return read_base64(value)
        if isinstance(value, str):
            return encode_string(value)
    else:
        _, least, greatest = _INTEGERS[dtype]
        if isinstance(value, int) and not is_bool and least <= value <= greatest:
            return value
    raise invalid(
        f"JSON Value: {shown(value)} Type: {kind_name(value)} is not of expected type: "
        f"{_name(dtype)}"
    )


def encode_string(value: str) -> bytes:
    """Returns the bytes of a JSON string.

    Raises:
        RequestError: INVALID_ARGUMENT for half a surrogate pair.
    """
    try:
        return value.encode("utf-8", BYTES_IN_STRING)
    except UnicodeEncodeError as err:
        raise invalid(
            "JSON Parse error: The surrogate pair in string is invalid. at offset: 0"
        ) from err


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _shape_of(value: Any) -> list[int]:
    shape: list[int] = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return shape


def _shape_text(shape: list[int]) -> str:
    return "[" + ",".join(str(size) for size in shape) + "]"


def _name(dtype: int) -> str:
    """Returns TensorFlow's name of a data type in messages ("float", "int64")."""
    name: str = types_pb2.DataType.Name(dtype)
    return name.removeprefix("DT_").lower()
