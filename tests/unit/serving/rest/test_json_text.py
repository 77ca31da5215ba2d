"""JSON as RapidJSON reads and writes it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.serving.rest.json_text import kind_name, parse_object, shown, write_float, write_string
from hotrow.serving.wire.status import RequestError


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float32_is_read_back_as_it_was_and_is_a_float(value: float) -> None:
    text = write_float(value, single=True)
    assert np.float32(text) == np.float32(value)
    assert isinstance(json.loads(text), float)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float64_is_read_back_as_it_was_and_is_a_float(value: float) -> None:
    text = write_float(value, single=False)
    assert float(text) == value
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
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_a_float_is_written_as_tensorflow_serving_does(value: float, text: str) -> None:
    assert write_float(float(np.float32(value)), single=True) == text


@given(st.binary())
def test_a_string_is_quoted_and_its_bytes_are_kept(value: bytes) -> None:
    written = write_string(value).encode("utf-8", "surrogateescape")
    assert parse_object(b'{"s": ' + written + b"}")["s"].encode("utf-8", "surrogateescape") == value


def test_only_the_first_object_is_read() -> None:
    assert parse_object(b' \n{"a": [NaN, -Inf, Inf, "Inf"]} } tail')["a"][1:] == [
        -math.inf,
        math.inf,
        "Inf",
    ]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "JSON Parse error: The document is empty"),
        (b"  ", "JSON Parse error: The document is empty. at offset: 2"),
        (b'{"a" 1}', "Missing a colon after a name of object member. at offset: 5"),
        (b"{1: 2}", "Missing a name for object member. at offset: 1"),
        (b'{"a": "', "Missing a closing quotation mark in string."),
        (b"7", "JSON Value: 7 Is not object"),
        (b"[" * 200_000, "JSON Parse error: the value is nested too deeply"),
    ],
)
def test_a_body_is_refused_with_the_reason(body: bytes, text: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_object(body)
    assert text in str(caught.value)


def test_a_value_in_a_message_is_cut() -> None:
    assert shown({"a": 1}) == '{\n    "a": 1\n}'
    assert len(shown(list(range(1000)))) == 256


def test_kinds_have_rapidjsons_names() -> None:
    values: list[object] = [None, True, False, 1, 1.5, "s", [], {}]
    names = ["Null", "True", "False", "Number", "Number", "String", "Array", "Object"]
    assert [kind_name(value) for value in values] == names
