"""The table of errors: code and text of every refused gRPC request, as TF Serving gives them."""

from __future__ import annotations

import re
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from integration.serving.grpc_calls import predict_request, refusal
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
    regression_pb2,
)

NOT_FOUND = grpc.StatusCode.NOT_FOUND
INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION

ONE = "value { dtype: DT_FLOAT tensor_shape { dim { size: 1 } } float_val: 1 }"
X = f'inputs {{ key: "x" {ONE} }}'
Z = f'inputs {{ key: "z" {ONE} }}'
HALF = 'model_spec { name: "half" }'


@pytest.mark.parametrize(
    ("request_text", "code", "text"),
    [
        pytest.param(
            f'model_spec {{ name: "nope" }} {X}',
            NOT_FOUND,
            "Servable not found for request: Latest(nope)",
            id="the model is not served",
        ),
        pytest.param(
            f'model_spec {{ name: "half" version {{ value: 9 }} }} {X}',
            NOT_FOUND,
            "Servable not found for request: Specific(half, 9)",
            id="the version is not loaded",
        ),
        pytest.param(
            f'model_spec {{ name: "nope" version {{ value: 9 }} }} {X}',
            NOT_FOUND,
            "Servable not found for request: Specific(nope, 9)",
            id="the model of that version is not served",
        ),
        pytest.param(X, INVALID, "Missing ModelSpec", id="there is no model spec"),
        pytest.param(
            f"model_spec {{ }} {X}",
            INVALID,
            "ModelSpec has no name specified.",
            id="the model spec has no name",
        ),
        pytest.param(
            f'model_spec {{ name: "half" version_label: "canary" }} {X}',
            INVALID,
            "Unrecognized servable version label: canary",
            id="the label is unknown",
        ),
        pytest.param(
            f'model_spec {{ name: "half" signature_name: "S" }} {X}',
            PRECONDITION,
            'Serving signature key "S" not found.',
            id="there is no such signature",
        ),
        pytest.param(
            f"{HALF} {X} {Z}",
            INVALID,
            "input size does not match signature: 2!=1 len({x,z}) != len({x}). "
            "Sent extra: {z}. Missing but required: {}.",
            id="there are too many inputs",
        ),
        pytest.param(
            HALF,
            INVALID,
            "input size does not match signature: 0!=1 len({}) != len({x}). "
            "Sent extra: {}. Missing but required: {x}.",
            id="there is no input",
        ),
        pytest.param(
            f"{HALF} {Z}",
            INVALID,
            "Signature input alias: x(feed name: x:0) not found in request and no default value "
            "provided. Inputs expected to be in the request {z}, or default input alias set: ",
            id="the input has another name",
        ),
        pytest.param(
            f'{HALF} inputs {{ key: "x" value {{ dtype: DT_FLOAT tensor_content: "abc" '
            "tensor_shape { dim { size: 1 } } } }",
            INVALID,
            "tensor parsing error: x",
            id="the tensor's content has another size",
        ),
        pytest.param(
            f'{HALF} inputs {{ key: "x" value {{ float_val: 1 }} }}',
            INVALID,
            "tensor parsing error: x",
            id="the tensor has no data type",
        ),
        pytest.param(
            f'{HALF} inputs {{ key: "x" value {{ dtype: DT_FLOAT '
            "tensor_shape { dim { size: -1 } } } }",
            INVALID,
            "tensor parsing error: x",
            id="the tensor has a negative size",
        ),
        pytest.param(
            f'{HALF} inputs {{ key: "x" value {{ dtype: DT_INT32 int_val: 1 }} }}',
            INVALID,
            "Expects arg[0] to be float but int32 is provided",
            id="the tensor has another data type",
        ),
        pytest.param(
            f'{HALF} {X} output_filter: "z"',
            INVALID,
            "output tensor alias not found in signature: z Outputs expected to be in the set {y}.",
            id="the output filter names no output",
        ),
        pytest.param(
            f'{HALF} {X} output_filter: "y" output_filter: "y"',
            INVALID,
            "duplicate output tensor alias: y",
            id="the output filter names an output twice",
        ),
    ],
)
def test_predict_refuses_when(
    half_plus_two: Any, request_text: str, code: grpc.StatusCode, text: str
) -> None:
    request = text_format.Parse(request_text, predict_pb2.PredictRequest())
    assert refusal(half_plus_two.prediction.Predict, request) == (code, text)


def test_predict_names_the_inputs_it_used_when_a_default_hides_a_wrong_name(
    half_plus_two_tf2: Any,
) -> None:
    request = text_format.Parse(f'model_spec {{ name: "half2" }} {Z}', predict_pb2.PredictRequest())
    assert refusal(half_plus_two_tf2.prediction.Predict, request) == (
        INVALID,
        "Inputs contains invalid name. Used request inputs: , request input: z",
    )


def test_an_op_that_refuses_shapes_is_quoted_with_its_node(zoo: Any) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "zoo"
    request.model_spec.signature_name = "add"
    request.inputs["a"].CopyFrom(tf.make_tensor_proto(np.zeros(3, np.float32)))
    request.inputs["b"].CopyFrom(tf.make_tensor_proto(np.zeros(2, np.int64)))
    code, text = refusal(zoo.prediction.Predict, request)
    assert code is INVALID
    assert re.match(r"Incompatible shapes: \[\d\] vs\. \[\d\]\n\t \[\[.*\{\{node .*\}\}\]\]", text)
    assert "Traceback" not in text


def test_an_op_that_refuses_a_shape_that_is_not_declared_is_explained(zoo: Any) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "zoo"
    request.model_spec.signature_name = "add"
    request.inputs["a"].CopyFrom(tf.make_tensor_proto(np.zeros((2, 2), np.float32)))
    request.inputs["b"].CopyFrom(tf.make_tensor_proto(np.zeros(3, np.int64)))
    code, text = refusal(zoo.prediction.Predict, request)
    assert code is INVALID
    assert text.startswith("Incompatible shapes: ")
    assert text.endswith("\n\t (input 'a' has shape [2,2], the signature takes [-1])")


def test_a_long_message_is_cut_and_marked(zoo: Any) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "zoo"
    request.model_spec.signature_name = "complain"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.zeros(1, np.float32)))
    code, text = refusal(zoo.prediction.Predict, request)
    assert code is INVALID
    assert text.endswith("x...TRUNCATED")
    assert len(text) == 1024 + len("...TRUNCATED")


EXAMPLE = (
    'input { example_list { examples { features { feature { key: "x" value '
    "{ float_list { value: 2 } } } } } } }"
)


@pytest.mark.parametrize(
    ("request_text", "code", "text"),
    [
        pytest.param(EXAMPLE, INVALID, "Missing ModelSpec", id="there is no model spec"),
        pytest.param(
            f'model_spec {{ name: "half" signature_name: "S" }} {EXAMPLE}',
            INVALID,
            "No signature was found with the name: S",
            id="there is no such signature",
        ),
        pytest.param(
            'model_spec { name: "half" signature_name: "classify_x_to_y" }',
            INVALID,
            "Input is empty.",
            id="there is no example",
        ),
        pytest.param(
            f"{HALF} {EXAMPLE}",
            INVALID,
            "No classification inputs found in SignatureDef: ",
            id="the signature is one for predict",
        ),
        pytest.param(
            f'model_spec {{ name: "half" signature_name: "regress_x_to_y" }} {EXAMPLE}',
            INVALID,
            'Expected classification signature outputs to contain at least one of "classes" or '
            '"scores". ',
            id="the signature is one for regress",
        ),
        pytest.param(
            'model_spec { name: "half" signature_name: "classify_x_to_y" } '
            "input { example_list { examples { } } }",
            INVALID,
            "Name: <unknown>, Feature: x (data type: float) is required but could not be found.",
            id="an example lacks a feature",
        ),
    ],
)
def test_classify_refuses_when(
    half_plus_two: Any, request_text: str, code: grpc.StatusCode, text: str
) -> None:
    request = text_format.Parse(request_text, classification_pb2.ClassificationRequest())
    refused, details = refusal(half_plus_two.prediction.Classify, request)
    assert refused is code
    assert details.startswith(text)


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        pytest.param(
            "S", "No signature was found with the name: S", id="there is no such signature"
        ),
        pytest.param(
            "serving_default",
            "No regression inputs found in SignatureDef: ",
            id="the signature is one for predict",
        ),
        pytest.param(
            "classify_x_to_y",
            "No regression outputs found in SignatureDef: ",
            id="the signature is one for classify",
        ),
    ],
)
def test_regress_refuses_when(half_plus_two: Any, signature: str, text: str) -> None:
    request = text_format.Parse(
        f'model_spec {{ name: "half" signature_name: "{signature}" }} {EXAMPLE}',
        regression_pb2.RegressionRequest(),
    )
    code, details = refusal(half_plus_two.prediction.Regress, request)
    assert code is INVALID
    assert details.startswith(text)


@pytest.mark.parametrize(
    ("request_text", "code", "text"),
    [
        pytest.param(
            'metadata_field: "signature_def"', INVALID, "Missing ModelSpec", id="there is no spec"
        ),
        pytest.param(
            HALF,
            INVALID,
            "GetModelMetadataRequest must specify at least one metadata_field",
            id="no field is asked for",
        ),
        pytest.param(
            f'{HALF} metadata_field: "F"',
            INVALID,
            "Metadata field F is not supported",
            id="the field is unknown",
        ),
        pytest.param(
            'model_spec { name: "nope" } metadata_field: "signature_def"',
            NOT_FOUND,
            "Servable not found for request: Latest(nope)",
            id="the model is not served",
        ),
    ],
)
def test_metadata_is_refused_when(
    half_plus_two: Any, request_text: str, code: grpc.StatusCode, text: str
) -> None:
    request = text_format.Parse(request_text, get_model_metadata_pb2.GetModelMetadataRequest())
    assert refusal(half_plus_two.prediction.GetModelMetadata, request) == (code, text)


@pytest.mark.parametrize(
    ("request_text", "code", "text"),
    [
        pytest.param("", INVALID, "Missing ModelSpec", id="there is no spec"),
        pytest.param(
            'model_spec { name: "nope" }',
            NOT_FOUND,
            "Could not find any versions of model nope",
            id="the model was never seen",
        ),
        pytest.param(
            'model_spec { name: "half" version { value: 9 } }',
            NOT_FOUND,
            "Could not find version 9 of model half",
            id="the version was never seen",
        ),
    ],
)
def test_status_is_refused_when(
    half_plus_two: Any, request_text: str, code: grpc.StatusCode, text: str
) -> None:
    request = text_format.Parse(request_text, get_model_status_pb2.GetModelStatusRequest())
    assert refusal(half_plus_two.models.GetModelStatus, request) == (code, text)


def test_metadata_that_processes_of_the_server_once_sent_changes_nothing(zoo: Any) -> None:
    request = predict_request("zoo", "spin", turns=np.int64(20_000))
    limit = [("x-hotrow-run-millis", "1")]
    reply = zoo.prediction.Predict(request, timeout=60, metadata=limit)
    assert list(reply.outputs["turned"].int64_val) == [20_000]
    request = predict_request("zoo", "complain", x=np.zeros(1, np.float32))
    with pytest.raises(grpc.RpcError) as refused:
        zoo.prediction.Predict(request, timeout=20, metadata=[("x-hotrow-whole-messages", "1")])
    assert refused.value.details().endswith("x...TRUNCATED")
