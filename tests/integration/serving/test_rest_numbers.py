"""Numbers over REST: each is written so that it reads back as the same value, and as a float."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.serving.conftest import Server
from tests.integration.serving.echo_model import echo_server

# A batch of numbers for each request.
BATCHES = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FLOAT = re.compile(r"-?\d+(\.\d+)?(e[-+]\d\d+)?")


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that answers the float32 or the float64 that it gets."""
    yield from echo_server(tmp_path_factory.mktemp("echo"), ("float32", "float64"))


def written(server: Server, kind: str, values: list[float]) -> list[str]:
    """Returns the numbers of a reply as they are written."""
    # `repr` has all digits of a float64.
    body = f'{{"signature_name": "{kind}", "inputs": [{", ".join(map(repr, values))}]}}'
    status, reply = server.rest("/v1/models/echo:predict", body.encode())
    assert status == 200, reply
    inner = re.fullmatch(r'\{\s*"outputs": \[(.*)\]\s*\}', reply, re.DOTALL)
    assert inner, reply
    return [text.strip() for text in inner[1].split(",")]


@BATCHES
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_a_float32_is_read_back_as_it_was_and_is_a_float(echo: Any, values: list[float]) -> None:
    for text, value in zip(written(echo, "float32", values), values, strict=True):
        assert np.float32(text) == np.float32(value)
        assert FLOAT.fullmatch(text)
        assert isinstance(json.loads(text), float)


@BATCHES
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_a_float64_is_read_back_as_it_was_and_is_a_float(echo: Any, values: list[float]) -> None:
    for text, value in zip(written(echo, "float64", values), values, strict=True):
        assert float(text) == value
        assert FLOAT.fullmatch(text)
        assert isinstance(json.loads(text), float)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.0, "2.0"),
        (0.2, "0.2"),
        (9e6, "9e+06"),
        (3e-5, "3e-05"),
        (1234567.0, "1234567.0"),
        (-0.0, "-0.0"),
    ],
)
def test_a_float_is_written_as_tensorflow_serving_does(echo: Any, value: float, text: str) -> None:
    assert written(echo, "float32", [value]) == [text]


def test_numbers_that_json_does_not_know_are_written(echo: Any) -> None:
    body = b'{"signature_name": "float32", "inputs": [NaN, -Infinity, Inf]}'
    _, reply = echo.rest("/v1/models/echo:predict", body)
    values = json.loads(reply)["outputs"]
    assert math.isnan(values[0])
    assert values[1:] == [-math.inf, math.inf]
