"""Requests to a server over gRPC, and what it refuses."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2


def predict_request(model: str, signature: str = "", **inputs: Any) -> predict_pb2.PredictRequest:
    """Returns a request with the inputs as tensors; None leaves an input out."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        if value is not None:
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def refusal(method: Any, request: Any) -> tuple[grpc.StatusCode, str]:
    """Returns code and message of a call that must fail."""
    with pytest.raises(grpc.RpcError) as refused:
        method(request, timeout=30)
    return refused.value.code(), refused.value.details()
