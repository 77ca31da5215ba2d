"""Classify and Regress: serialized tf.Examples in, classes or values out.

The checks and their texts are those of TF Serving's `classifier.cc` and `regressor.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import classification_pb2, input_pb2, regression_pb2

from hotrow.serving.signature import DEFAULT_SIGNATURE
from hotrow.serving.status import invalid
from hotrow.serving.tensor import Array

_INPUT = "inputs"
_CLASSES = "classes"
_SCORES = "scores"
_VALUES = "outputs"


@dataclass(frozen=True)
class ExamplePlan:
    """One run of a session: the tensor that takes the examples, and alias -> output tensor."""

    input: str
    outputs: dict[str, str]


def find_signature(
    signatures: Mapping[str, meta_graph_pb2.SignatureDef], name: str
) -> tuple[str, meta_graph_pb2.SignatureDef]:
    """Returns the resolved name and the signature for Classify and Regress.

    Raises:
        RequestError: INVALID_ARGUMENT when there is none of that name (Predict answers otherwise).
    """
    resolved = name or DEFAULT_SIGNATURE
    if resolved not in signatures:
        raise invalid(f"No signature was found with the name: {resolved}")
    return resolved, signatures[resolved]


def plan_classify(signature: meta_graph_pb2.SignatureDef) -> ExamplePlan:
    """Returns what Classify feeds and fetches.

    Raises:
        RequestError: INVALID_ARGUMENT when the signature is not one for Classify.
    """
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    if len(signature.outputs) not in (1, 2):
        raise invalid(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    if _INPUT not in signature.inputs:
        raise invalid(f"No classification inputs found in SignatureDef: {signature}")
    outputs = {
        alias: signature.outputs[alias].name
        for alias in (_CLASSES, _SCORES)
        if alias in signature.outputs
    }
    if not outputs:
        raise invalid(
            "Expected classification signature outputs to contain at least one of "
            f'"{_CLASSES}" or "{_SCORES}". Signature was: {signature}'
        )
    return ExamplePlan(signature.inputs[_INPUT].name, outputs)


def plan_regress(signature: meta_graph_pb2.SignatureDef) -> ExamplePlan:
    """Returns what Regress feeds and fetches.

    Raises:
        RequestError: INVALID_ARGUMENT when the signature is not one for Regress.
    """
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    if len(signature.outputs) != 1:
        raise invalid("Expected one output Tensor.")
    if _INPUT not in signature.inputs:
        raise invalid(f"No regression inputs found in SignatureDef: {signature}")
    if _VALUES not in signature.outputs:
        raise invalid(f"No regression outputs found in SignatureDef: {signature}")
    return ExamplePlan(signature.inputs[_INPUT].name, {_VALUES: signature.outputs[_VALUES].name})


def serialized_examples(given: input_pb2.Input) -> Array:
    """Returns the examples, an object array of bytes [N]; a context is put before each one.

    Raises:
        RequestError: INVALID_ARGUMENT when there are none.
    """
    context = b""
    examples = given.example_list.examples
    if given.WhichOneof("kind") == "example_list_with_context":
        context = given.example_list_with_context.context.SerializeToString()
        examples = given.example_list_with_context.examples
    if not examples:
        raise invalid("Input is empty.")
    rows: Array = np.empty(len(examples), dtype=object)
    # Concatenated messages are one merged message: that is how protobuf parses them.
    rows[:] = [context + example.SerializeToString() for example in examples]
    return rows


def classification_result(
    plan: ExamplePlan, results: list[tuple[Any, int]], rows: int
) -> classification_pb2.ClassificationResult:
    """Returns the classes of each row: a missing label is "", a missing score 0.

    Raises:
        RequestError: INVALID_ARGUMENT when an output has the wrong rank, type or batch size.
    """
    by_alias = dict(zip(plan.outputs, results, strict=True))
    classes = scores = None
    if _CLASSES in by_alias:
        classes = _checked_matrix(_CLASSES, *by_alias[_CLASSES], rows, types_pb2.DT_STRING)
    if _SCORES in by_alias:
        scores = _checked_matrix(_SCORES, *by_alias[_SCORES], rows, types_pb2.DT_FLOAT)
    if classes is not None and scores is not None and classes.shape[1] != scores.shape[1]:
        raise invalid(
            "Tensors class and score should match in dim_size(1). "
            f"Got {classes.shape[1]} vs. {scores.shape[1]}"
        )
    width = (
        classes.shape[1] if classes is not None else scores.shape[1] if scores is not None else 0
    )
    result = classification_pb2.ClassificationResult()
    for row in range(rows):
        entry = result.classifications.add()
        for column in range(width):
            entry.classes.add(
                label=classes[row, column] if classes is not None else "",
                score=scores[row, column] if scores is not None else 0.0,
            )
    return result


def regression_result(results: list[tuple[Any, int]], rows: int) -> regression_pb2.RegressionResult:
    """Returns the value of each row.

    Raises:
        RequestError: INVALID_ARGUMENT when the output is not float [N] or [N, 1].
    """
    ((output, dtype),) = results
    shape = np.shape(output)
    if not (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)):
        raise invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{_shape_text(shape)}"
        )
    if shape[0] != rows:
        raise invalid(f"Input batch size did not match output batch size: {rows} vs. {shape[0]}")
    if dtype != types_pb2.DT_FLOAT:
        raise invalid(f"Expected output Tensor of DT_FLOAT.  Got: {types_pb2.DataType.Name(dtype)}")
    result = regression_pb2.RegressionResult()
    for value in np.reshape(output, -1).tolist():
        result.regressions.add(value=value)
    return result


def _checked_matrix(alias: str, value: Any, dtype: int, rows: int, expected: int) -> Array:
    array = np.asarray(value)
    if array.ndim != 2:
        raise invalid(
            f"Expected Tensor shape: [batch_size num_classes] but got {_shape_text(array.shape)}"
        )
    if dtype != expected:
        raise invalid(
            f"Expected {alias} Tensor of {types_pb2.DataType.Name(expected)}. "
            f"Got: {types_pb2.DataType.Name(dtype)}"
        )
    if array.shape[0] != rows:
        raise invalid(f"Expected {alias} output batch size of {rows}. Got: {array.shape[0]}")
    return array


def _shape_text(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(str(size) for size in shape) + "]"
