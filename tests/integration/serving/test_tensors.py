"""Tensors of every type on their way through the server, in both forms of a TensorProto.

Other forms, and what is no tensor: serving/native/tests/predict_wire_test.cc.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import predict_pb2
from tests.integration.serving.conftest import Server
from tests.integration.serving.echo_model import echo_server
from typed_tensors import typed_tensor

KINDS: dict[str, Any] = {
    "float32": np.array([[1.5, -0.0], [np.inf, 1e-45]], np.float32),
    "float64": np.array([[1 / 3], [-1e308]], np.float64),
    "int8": np.array([-128, 127], np.int8),
    "int16": np.array([-32768, 32767], np.int16),
    "int32": np.array([-(2**31), 2**31 - 1], np.int32),
    "int64": np.array([-(2**63), 2**63 - 1], np.int64),
    "uint8": np.array([0, 255], np.uint8),
    "uint16": np.array([0, 65535], np.uint16),
    "uint32": np.array([0, 2**32 - 1], np.uint32),
    "uint64": np.array([0, 2**64 - 1], np.uint64),
    "bool": np.array([True, False, True]),
    "float16": np.array([0.1, -65504.0], np.float16),
    "bfloat16": np.array([0.1, -3e38], ml_dtypes.bfloat16),
    "complex64": np.array([1 + 2j, -3j], np.complex64),
    "complex128": np.array([1 / 3 + 2j], np.complex128),
    "string": np.array([b"", b"\x00\xff" * 40, "Zürich".encode()], object),
}


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a signature for each type, which answers what it gets."""
    yield from echo_server(tmp_path_factory.mktemp("echo"), list(KINDS))


def _answer(echo: Server, kind: str, proto: tensor_pb2.TensorProto) -> tensor_pb2.TensorProto:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "echo"
    request.model_spec.signature_name = kind
    request.inputs["x"].CopyFrom(proto)
    return echo.prediction.Predict(request, timeout=30).outputs["y"]


@pytest.mark.parametrize("kind", KINDS)
def test_both_forms_are_understood_and_typed_fields_come_back(echo: Server, kind: str) -> None:
    array = KINDS[kind]
    dtype = tf.as_dtype(kind).as_datatype_enum
    typed = typed_tensor(array, dtype)
    forms = [typed, tf.make_tensor_proto(array, dtype)]
    if kind != "string":
        content = tensor_pb2.TensorProto(
            dtype=dtype, tensor_shape=typed.tensor_shape, tensor_content=array.tobytes()
        )
        forms.append(content)
    for form in forms:
        assert _answer(echo, kind, form).SerializeToString() == typed.SerializeToString()


def test_what_is_no_tensor_is_refused_and_the_server_stays(echo: Server) -> None:
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_INT64, tensor_content=b"1234567")
    with pytest.raises(grpc.RpcError) as refused:
        _answer(echo, "float32", proto)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "tensor parsing error: x"
    answer = _answer(echo, "float32", typed_tensor(KINDS["float32"], types_pb2.DT_FLOAT))
    assert len(answer.float_val) == 4


def test_a_large_tensor_comes_back_as_it_was(echo: Server) -> None:
    array = np.random.default_rng(0).normal(size=900_000).astype(np.float32)
    answer = tf.make_ndarray(_answer(echo, "float32", tf.make_tensor_proto(array)))
    assert (answer == array).all()


def test_a_name_that_is_no_text_is_refused(echo: Server) -> None:
    call = echo.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"\x12\x05\x0a\x01\xff\x12\x00", timeout=30)
    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert refused.value.details() == "the request is no message of this method"


@pytest.mark.parametrize(
    ("kind", "value", "status", "text"),
    [
        ("int32", 2**31, 400, "is not of expected type: int32"),
        ("uint8", -(2**31) - 1, 400, "is not of expected type: uint8"),
        ("int64", 2**63, 400, "is not of expected type: int64"),
        ("bool", 1, 400, "is not of expected type: bool"),
        ("string", 1, 400, "is not of expected type: string"),
        ("float16", 1, 501, "Conversion of JSON Value: 1 to type: half"),
        ("complex64", 1, 501, "Conversion of JSON Value: 1 to type: complex64"),
    ],
)
def test_rest_refuses_a_value(echo: Server, kind: str, value: Any, status: int, text: str) -> None:
    got, body = echo.rest_predict({"signature_name": kind, "instances": [value]})
    assert (got, text in body) == (status, True), body


@pytest.mark.parametrize(("kind", "value"), [("int8", 44), ("uint8", 44), ("int16", 300)])
def test_rest_holds_small_integers_to_the_range_of_int32_only(
    echo: Server, kind: str, value: int
) -> None:
    status, body = echo.rest_predict({"signature_name": kind, "instances": [300]})
    assert (status, json.loads(body)) == (200, {"predictions": [value]})
