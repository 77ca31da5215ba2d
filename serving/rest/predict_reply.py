"""Tensors of a Predict reply to the JSON body of `:predict`, laid out as TF Serving does."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.core.framework import tensor_pb2, types_pb2

from hotrow.serving.rest.json_text import write_float, write_string
from hotrow.serving.rest.predict_request import Form
from hotrow.serving.wire.status import invalid
from hotrow.serving.wire.tensor import Array, decode_tensor

_INDENT = "    "
_INTEGERS = (
    types_pb2.DT_INT8,
    types_pb2.DT_INT16,
    types_pb2.DT_INT32,
    types_pb2.DT_INT64,
    types_pb2.DT_UINT8,
    types_pb2.DT_UINT32,
    types_pb2.DT_UINT64,
)


def write_outputs(outputs: Mapping[str, tensor_pb2.TensorProto], form: Form) -> str:
    """Returns the reply's body: bare values for one output, objects for several.

    Raises:
        RequestError: INVALID_ARGUMENT for an output whose type has no JSON form, and, in row
            form, for outputs that do not agree in their 0th dimension.
    """
    if not outputs:
        raise invalid("Cannot convert empty tensor map to JSON")
    arrays = {name: decode_tensor(outputs[name]) for name in sorted(outputs)}
    writers = {name: _writer(name, outputs[name].dtype) for name in arrays}
    if form is Form.ROW:
        return _write_rows(arrays, writers)
    return _write_columns(arrays, writers)


def _write_rows(arrays: Mapping[str, Array], writers: Mapping[str, Callable[[Any], str]]) -> str:
    rows = _row_count(arrays)
    lists = {name: array.tolist() for name, array in arrays.items()}
    if len(lists) == 1:
        ((name, values),) = lists.items()
        body = ", ".join(_on_one_line(value, writers[name]) for value in values)
        return f'{{\n{_INDENT}"predictions": [{body}\n{_INDENT}]\n}}'
    inner = _INDENT * 3
    objects = []
    for row in range(rows):
        members = ",\n".join(
            f"{inner}{write_string(name)}: {_on_one_line(values[row], writers[name])}"
            for name, values in lists.items()
        )
        objects.append(f"\n{_INDENT * 2}{{\n{members}\n{_INDENT * 2}}}")
    return f'{{\n{_INDENT}"predictions": [{",".join(objects)}\n{_INDENT}]\n}}'


def _write_columns(arrays: Mapping[str, Array], writers: Mapping[str, Callable[[Any], str]]) -> str:
    if len(arrays) == 1:
        ((name, array),) = arrays.items()
        value = _indented(array.tolist(), writers[name], 1)
    else:
        members = ",\n".join(
            f"{_INDENT * 2}{write_string(name)}: {_indented(array.tolist(), writers[name], 2)}"
            for name, array in arrays.items()
        )
        value = f"{{\n{members}\n{_INDENT}}}"
    return f'{{\n{_INDENT}"outputs": {value}\n}}'


def _row_count(arrays: Mapping[str, Array]) -> int:
    rows = 0
    for name, array in arrays.items():
        if array.ndim == 0:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if array.shape[0] < 1:
            raise invalid(f"Tensor name: {name} has invalid batch size: {array.shape[0]}")
        if rows not in (0, array.shape[0]):
            raise invalid(
                f"Tensor name: {name} has inconsistent batch size: {array.shape[0]} "
                f"expecting: {rows}"
            )
        rows = array.shape[0]
    return rows


def _writer(name: str, dtype: int) -> Callable[[Any], str]:
    """Returns the function that writes one value of a tensor."""
    if dtype == types_pb2.DT_FLOAT:
        return lambda value: write_float(value, single=True)
    if dtype == types_pb2.DT_DOUBLE:
        return lambda value: write_float(value, single=False)
    if dtype in _INTEGERS:
        return str
    if dtype == types_pb2.DT_BOOL:
        return lambda value: "true" if value else "false"
    if dtype == types_pb2.DT_STRING:
        return _write_base64 if name.endswith("_bytes") else write_string
    kind = types_pb2.DataType.Name(dtype).removeprefix("DT_").lower()
    raise invalid(f"Failed to write JSON value for tensor type: {kind}")


def _write_base64(value: bytes) -> str:
    return f'{{"b64": "{base64.b64encode(value).decode()}"}}'


def _on_one_line(value: Any, write: Callable[[Any], str]) -> str:
    if not isinstance(value, list):
        return write(value)
    return "[" + ", ".join(_on_one_line(item, write) for item in value) + "]"


def _indented(value: Any, write: Callable[[Any], str], depth: int) -> str:
    if not isinstance(value, list):
        return write(value)
    if not value:
        return "[]"
    inner = _INDENT * (depth + 1)
    items = ",\n".join(f"{inner}{_indented(item, write, depth + 1)}" for item in value)
    return f"[\n{items}\n{_INDENT * depth}]"
