"""Server reflection: a client without any of the protos asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

# The name of the method that every implementation has.
METHOD = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
LIST_SERVICES = b"\x3a\x00"


def _ask(server: Any, *requests: bytes) -> list[bytes]:
    """Returns the serialized replies to serialized requests."""
    return list(server.channel.stream_stream(METHOD)(iter(requests), timeout=30))


def _file_of(symbol: str) -> bytes:
    return b"\x22" + bytes([len(symbol)]) + symbol.encode()


@pytest.fixture
def reflecting(base: Path, start_server: Any) -> Any:
    server = start_server("half", base, "--enable_grpc_reflection")
    server.wait_ready()
    return server


def test_services_and_their_messages_are_described(reflecting: Any) -> None:
    services = ("tensorflow.serving.PredictionService", "tensorflow.serving.ModelService")
    (listed,) = _ask(reflecting, LIST_SERVICES)
    for service in services:
        assert service.encode() in listed
    prediction, model = _ask(reflecting, *map(_file_of, services))
    assert b"tensorflow_serving/apis/prediction_service.proto" in prediction
    assert b"PredictRequest" in prediction
    assert b"tensorflow_serving/apis/model_service.proto" in model
    assert b"HandleReloadConfigRequest" in model


def test_it_takes_nothing_from_the_services(reflecting: Any) -> None:
    assert reflecting.predict(x=[1.0]).outputs["y"].float_val == [2.5]
    for method in ("-", "Nothing"):
        call = reflecting.channel.unary_unary(f"/tensorflow.serving.PredictionService/{method}")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=30)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_it_is_off_without_its_flag(half_plus_two: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        _ask(half_plus_two, LIST_SERVICES)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
