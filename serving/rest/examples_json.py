"""JSON bodies of `:classify` and `:regress`: tf.Examples in, results out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorflow.core.example import example_pb2, feature_pb2
from tensorflow_serving.apis import classification_pb2, input_pb2, regression_pb2

from hotrow.serving.rest.json_column import encode_string, is_base64, read_base64
from hotrow.serving.rest.json_text import kind_name, shown, write_float, write_string
from hotrow.serving.wire.status import invalid

_KINDS = {"int64_list": "int64", "float_list": "float", "bytes_list": "bytes"}
_INDENT = "    "


def read_examples(body: Mapping[str, Any]) -> input_pb2.Input:
    """Returns the body's `examples`, with its `context` if it has one.

    Raises:
        RequestError: INVALID_ARGUMENT for a body of another form.
    """
    rows = body.get("examples")
    if "examples" not in body:
        raise invalid(
            f"JSON Value: {shown(body)} When method is classify, key 'examples' is expected and "
            "was not found"
        )
    if not isinstance(rows, list):
        raise invalid(f"JSON Value: {shown(body)} Expecting 'examples' value to be an list/array")
    if not rows:
        raise invalid(f"JSON Value: {shown(body)} 'examples' value is an empty array")
    given = input_pb2.Input()
    if "context" in body:
        given.example_list_with_context.context.CopyFrom(_example(body["context"]))
        given.example_list_with_context.examples.extend(_example(row) for row in rows)
    else:
        given.example_list.examples.extend(_example(row) for row in rows)
    return given


def write_classes(result: classification_pb2.ClassificationResult) -> str:
    """Returns `{"results": [[["label", score], ..], ..]}`."""
    rows = []
    for entry in result.classifications:
        pairs = (
            f"[{write_string(one.label)}, {write_float(one.score, single=True)}]"
            for one in entry.classes
        )
        rows.append(f"[{', '.join(pairs)}]")
    return f'{{\n{_INDENT}"results": [{", ".join(rows)}\n{_INDENT}]\n}}'


def write_values(result: regression_pb2.RegressionResult) -> str:
    """Returns `{"results": [value, ..]}`."""
    values = ", ".join(write_float(one.value, single=True) for one in result.regressions)
    return f'{{\n{_INDENT}"results": [{values}]\n}}'


def _example(value: Any) -> example_pb2.Example:
    if not isinstance(value, dict):
        raise invalid(f"Example must be JSON object but got JSON {kind_name(value)}")
    example = example_pb2.Example()
    for name, content in value.items():
        feature = example.features.feature[name]
        for item in content if isinstance(content, list) else [content]:
            _add(feature, name, item)
    return example


def _add(feature: feature_pb2.Feature, name: str, value: Any) -> None:
    """Adds a value: integers and booleans as int64, decimals as float, strings as bytes."""
    entry: int | float | bytes
    if isinstance(value, int):
        kind, entry = "int64_list", int(value)
        if entry >= 2**63:
            raise invalid(f"Feature: {name} has uint64_t element. Only int64_t is supported.")
        if entry < -(2**63):
            kind, entry = "float_list", float(entry)
    elif isinstance(value, float):
        kind, entry = "float_list", value
    elif isinstance(value, str):
        kind, entry = "bytes_list", encode_string(value)
    elif is_base64(value):
        kind, entry = "bytes_list", read_base64(value)
    else:
        raise invalid(f"Feature: {name} has element with unexpected JSON type: {kind_name(value)}")
    present = feature.WhichOneof("kind")
    if present not in (None, kind):
        raise invalid(
            f"Unexpected element type in feature: {name} expecting type: {_KINDS[present]}"
        )
    getattr(feature, kind).value.append(entry)
