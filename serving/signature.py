"""What a Predict request feeds and fetches, checked against the signature.

The checks, their order and their texts are those of TF Serving's `predict_util.cc` and
TensorFlow's `cc/saved_model/util.cc`. Declared shapes are never checked, there or here: a wrong
shape is the op's to refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from hotrow.serving.status import Code, RequestError, invalid
from hotrow.serving.tensor import Array, decode_tensor

DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class PredictPlan:
    """One run of a session.

    Attributes:
        feeds: name of a graph tensor -> its value.
        fetches: output alias -> name of a graph tensor.
    """

    feeds: dict[str, Array]
    fetches: dict[str, str]


def find_signature(
    signatures: Mapping[str, meta_graph_pb2.SignatureDef], name: str
) -> tuple[str, meta_graph_pb2.SignatureDef]:
    """Returns the resolved name ("" means `serving_default`) and the signature for Predict.

    Raises:
        RequestError: FAILED_PRECONDITION when there is none of that name.
    """
    resolved = name or DEFAULT_SIGNATURE
    if resolved not in signatures:
        raise RequestError(
            Code.FAILED_PRECONDITION, f'Serving signature key "{resolved}" not found.'
        )
    return resolved, signatures[resolved]


def plan_predict(
    signature: meta_graph_pb2.SignatureDef,
    inputs: Mapping[str, tensor_pb2.TensorProto],
    output_filter: Iterable[str],
) -> PredictPlan:
    """Returns what to feed and fetch for a request.

    Raises:
        RequestError: INVALID_ARGUMENT for inputs or outputs that the signature does not have,
            a missing input without a default, or a tensor that cannot be decoded.
    """
    _check_input_count(signature, inputs)
    return PredictPlan(_feeds(signature, inputs), _fetches(signature, output_filter))


def _check_input_count(
    signature: meta_graph_pb2.SignatureDef, inputs: Mapping[str, tensor_pb2.TensorProto]
) -> None:
    sent, declared = set(inputs), set(signature.inputs)
    if len(sent) == len(declared) or (len(sent) < len(declared) and signature.defaults):
        return
    raise invalid(
        f"input size does not match signature: {len(sent)}!={len(declared)} "
        f"len({{{_names(sent)}}}) != len({{{_names(declared)}}}). "
        f"Sent extra: {{{_names(sent - declared)}}}. "
        f"Missing but required: {{{_names(declared - sent)}}}."
    )


def _feeds(
    signature: meta_graph_pb2.SignatureDef, inputs: Mapping[str, tensor_pb2.TensorProto]
) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    for alias in sorted(signature.inputs):
        tensor_name = signature.inputs[alias].name
        if alias in inputs:
            proto = inputs[alias]
        elif alias in signature.defaults:
            proto = signature.defaults[alias]
        else:
            raise invalid(
                f"Signature input alias: {alias}(feed name: {tensor_name}) not found in request "
                f"and no default value provided. Inputs expected to be in the request "
                f"{{{_names(inputs)}}}, or default input alias set: {_names(signature.defaults)}"
            )
        try:
            feeds[tensor_name] = decode_tensor(proto)
        except (ValueError, MemoryError) as err:
            raise invalid(f"tensor parsing error: {alias}") from err
    used = set(inputs) & set(signature.inputs)
    if len(used) != len(inputs):
        raise invalid(
            f"Inputs contains invalid name. Used request inputs: {_names(used)}, "
            f"request input: {_names(inputs)}"
        )
    return feeds


def _fetches(
    signature: meta_graph_pb2.SignatureDef, output_filter: Iterable[str]
) -> dict[str, str]:
    fetches: dict[str, str] = {}
    for alias in output_filter:
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in "
                f"the set {{{_names(signature.outputs)}}}."
            )
        if alias in fetches:
            raise invalid(f"duplicate output tensor alias: {alias}")
        fetches[alias] = signature.outputs[alias].name
    return fetches or {alias: signature.outputs[alias].name for alias in sorted(signature.outputs)}


def _names(names: Iterable[str]) -> str:
    return ",".join(sorted(names))
