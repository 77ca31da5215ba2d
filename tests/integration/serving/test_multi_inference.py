"""MultiInference: several signatures of one model in one run."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tensorflow_serving.apis import inference_pb2

CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


def _request(*tasks: tuple[str, str], model: str = "half") -> inference_pb2.MultiInferenceRequest:
    """Tasks of (signature, method) on examples with x = 1 and 4."""
    request = inference_pb2.MultiInferenceRequest()
    for signature, method in tasks:
        task = request.tasks.add(method_name=method)
        task.model_spec.name = model
        task.model_spec.signature_name = signature
    for x in (1.0, 4.0):
        feature = request.input.example_list.examples.add().features.feature["x"]
        feature.float_list.value.append(x)
    return request


def test_each_task_is_answered_in_its_order(half_plus_two: Any) -> None:
    reply = half_plus_two.prediction.MultiInference(
        _request(("regress_x_to_y", REGRESS), ("classify_x_to_y", CLASSIFY)), timeout=30
    )
    regression, classification = reply.results
    assert [one.value for one in regression.regression_result.regressions] == [2.5, 4.0]
    assert [
        [one.score for one in row.classes]
        for row in classification.classification_result.classifications
    ] == [[2.5], [4.0]]
    assert [result.model_spec.signature_name for result in reply.results] == [
        "regress_x_to_y",
        "classify_x_to_y",
    ]
    assert {result.model_spec.version.value for result in reply.results} == {123}


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (inference_pb2.MultiInferenceRequest(), "INVALID_ARGUMENT", "has no name specified."),
        (
            _request(("regress_x_to_y", REGRESS), ("regress_x_to_y", REGRESS)),
            "INVALID_ARGUMENT",
            "Duplicate evaluation of signature: regress_x_to_y",
        ),
        (
            _request(("absent", REGRESS)),
            "INVALID_ARGUMENT",
            "Requested signature not found in model graph: absent",
        ),
        (
            _request(("regress_x_to_y", "tensorflow/serving/predict")),
            "UNIMPLEMENTED",
            "Unsupported signature method_name: tensorflow/serving/predict",
        ),
        (
            _request(("regress_x_to_y", REGRESS), model="other"),
            "NOT_FOUND",
            "Servable not found for request: Latest(other)",
        ),
    ],
    ids=["no tasks", "twice", "no signature", "no method", "no model"],
)
def test_what_cannot_be_answered_is_refused(
    half_plus_two: Any, request_: inference_pb2.MultiInferenceRequest, code: str, text: str
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        half_plus_two.prediction.MultiInference(request_, timeout=30)
    assert refused.value.code().name == code
    assert text in refused.value.details()


def test_all_tasks_have_one_model(half_plus_two: Any) -> None:
    request = _request(("regress_x_to_y", REGRESS), ("classify_x_to_y", CLASSIFY))
    request.tasks[1].model_spec.name = "other"
    with pytest.raises(grpc.RpcError) as refused:
        half_plus_two.prediction.MultiInference(request, timeout=30)
    assert "All ModelSpecs in a MultiInferenceRequest" in refused.value.details()
    request.tasks[1].model_spec.name = ""
    with pytest.raises(grpc.RpcError) as refused:
        half_plus_two.prediction.MultiInference(request, timeout=30)
    assert refused.value.details() == "Found ModelSpec with an empty model name."


def test_the_first_task_chooses_the_version(half_plus_two: Any) -> None:
    request = _request(("regress_x_to_y", REGRESS), ("classify_x_to_y", CLASSIFY))
    request.tasks[1].model_spec.version.value = 9
    reply = half_plus_two.prediction.MultiInference(request, timeout=30)
    assert [result.model_spec.version.value for result in reply.results] == [123, 123]
    request.tasks[0].model_spec.version.value = 9
    with pytest.raises(grpc.RpcError) as refused:
        half_plus_two.prediction.MultiInference(request, timeout=30)
    assert refused.value.details() == "Servable not found for request: Specific(half, 9)"
