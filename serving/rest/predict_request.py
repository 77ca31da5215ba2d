"""JSON body of `:predict` to the tensors of a Predict request.

The rules and texts are those of TF Serving's `util/json_tensor.cc`: `instances` is the row form,
`inputs` the columnar one.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from hotrow.serving.rest.json_column import Column, is_base64
from hotrow.serving.rest.json_text import shown
from hotrow.serving.wire.status import Code, RequestError, invalid

Inputs = Mapping[str, meta_graph_pb2.TensorInfo]


class Form(enum.Enum):
    """Form of a request, which is also the form of its reply."""

    ROW = "instances"
    COLUMNAR = "inputs"


def signature_name(body: Mapping[str, Any]) -> str:
    """Returns the body's `signature_name`, "" when it has none.

    Raises:
        RequestError: INVALID_ARGUMENT when it is not a string.
    """
    name = body.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {shown(body)} not formatted correctly. 'signature_name' key must be a "
            "string value."
        )
    return name


def read_inputs(
    body: Mapping[str, Any], inputs: Inputs
) -> tuple[Form, dict[str, tensor_pb2.TensorProto]]:
    """Returns the form of the body and its tensors by input name.

    Raises:
        RequestError: INVALID_ARGUMENT for a body that does not fit the signature's inputs,
            UNIMPLEMENTED for an input whose type has no JSON form.
    """
    if "instances" in body and "inputs" in body:
        raise invalid(
            f"JSON Value: {shown(body)} Not formatted correctly expecting only one of 'inputs' or "
            "'instances' keys to exist "
        )
    if "instances" in body:
        rows = body["instances"]
        if not isinstance(rows, list):
            raise invalid(f"JSON Value: {shown(body)} Expecting 'instances' to be an list/array")
        if not rows:
            raise invalid(f"JSON Value: {shown(body)} No values in 'instances' array")
        return Form.ROW, _read_rows(rows, inputs)
    if "inputs" in body:
        return Form.COLUMNAR, _read_columns(body["inputs"], inputs)
    raise invalid("Missing 'inputs' or 'instances' key")


def _read_rows(rows: list[Any], inputs: Inputs) -> dict[str, tensor_pb2.TensorProto]:
    if not isinstance(rows[0], dict) and len(inputs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    named = _is_named(rows[0])
    columns = {name: Column(inputs[name].dtype) for name in inputs}
    for at, row in enumerate(rows):
        if named and not _is_named(row):
            raise invalid(f"Expecting object but got list at item {at} of input list")
        if not named and _is_named(row):
            raise invalid(f"Expecting value/list but got object at item {at} of input list")
        items = row if named else {next(iter(inputs)): row}
        for name, value in items.items():
            try:
                if name not in columns:
                    raise invalid(f"JSON object: does not have named input: {name}")
                columns[name].add(value)
            except RequestError as err:
                key = f"key: {name} " if named else ""
                raise RequestError(
                    err.code if err.code is Code.UNIMPLEMENTED else Code.INVALID_ARGUMENT,
                    f"Failed to process element: {at} {key}of 'instances' list. "
                    f"Error: {err.code.name}: {err}",
                ) from err
        if named and items.keys() != columns.keys():
            raise invalid(
                f"Failed to process element: {at} of 'instances' list. JSON object: {shown(row)} "
                f"keys must be equal to: {','.join(sorted(columns))}"
            )
    return {name: column.proto(rows=len(rows)) for name, column in columns.items()}


def _read_columns(value: Any, inputs: Inputs) -> dict[str, tensor_pb2.TensorProto]:
    if not _is_named(value):
        if len(inputs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        value = dict.fromkeys(inputs, value)
    protos: dict[str, tensor_pb2.TensorProto] = {}
    for name, info in inputs.items():
        if name not in value:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
        column = Column(info.dtype)
        column.add(value[name])
        protos[name] = column.proto(rows=None)
    return protos


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and not is_base64(value)
