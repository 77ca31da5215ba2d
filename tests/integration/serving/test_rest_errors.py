"""The table of errors over REST: HTTP code and text."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param("", "JSON Parse error: The document is empty", id="the body is empty"),
        pytest.param(
            "hello", "JSON Parse error: Invalid value. at offset: 0", id="the body is no JSON"
        ),
        pytest.param("[1, 2]", "JSON Value: [\n    1,\n    2\n] Is not object", id="it is a list"),
        pytest.param(
            b'"\xf5"', 'JSON Value: "\ufffd" Is not object', id="it is a string of other bytes"
        ),
        pytest.param(
            '{"instances": ' + "[" * 1000 + "1" + "]" * 1000 + "}",
            "JSON Parse error: the value is nested too deeply",
            id="it is nested too deeply",
        ),
        pytest.param(
            '{"signature_name": 5, "instances": [1]}',
            "not formatted correctly. 'signature_name' key must be a string value.",
            id="the signature's name is a number",
        ),
        pytest.param(
            '{"signature_name": "S", "instances": [1]}',
            'Serving signature name: "S" not found in signature def',
            id="there is no such signature",
        ),
        pytest.param(
            '{"x": 1}', "Missing 'inputs' or 'instances' key", id="there are no instances"
        ),
        pytest.param(
            '{"instances": [1], "inputs": [1]}',
            "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ",
            id="both forms are given",
        ),
        pytest.param(
            '{"instances": 1}',
            "Expecting 'instances' to be an list/array",
            id="instances is no list",
        ),
        pytest.param(
            '{"instances": []}', "No values in 'instances' array", id="instances is empty"
        ),
        pytest.param(
            '{"signature_name": "add", "instances": [1]}',
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map",
            id="values lack the names of several inputs",
        ),
        pytest.param(
            '{"instances": [{"x": 1}, 2]}',
            "Expecting object but got list at item 1 of input list",
            id="a value follows objects",
        ),
        pytest.param(
            '{"instances": [1, {"x": 2}]}',
            "Expecting value/list but got object at item 1 of input list",
            id="an object follows values",
        ),
        pytest.param(
            '{"instances": [{"q": 1}]}',
            "Failed to process element: 0 key: q of 'instances' list. Error: INVALID_ARGUMENT: "
            "JSON object: does not have named input: q",
            id="an object has an unknown key",
        ),
        pytest.param(
            '{"signature_name": "add", "instances": [{"a": 1}]}',
            "keys must be equal to: a,b",
            id="an object lacks a key",
        ),
        pytest.param(
            '{"instances": [[1], [1, 2]]}',
            "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "
            "Expecting tensor size: 1 but got: 2",
            id="rows differ in size",
        ),
        pytest.param(
            '{"instances": [[1, 2], [[1], [2]]]}',
            "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "
            "Expecting shape [2] but got: [2,1]",
            id="rows differ in shape",
        ),
        pytest.param(
            '{"instances": [[[1, 2], [3]]]}',
            "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "
            "Encountered list at unexpected size: 1 at level: 1 expected size: 2",
            id="a row is uneven",
        ),
        pytest.param(
            '{"instances": [[1, [2]]]}',
            "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "
            "Encountered list at unexpected level: 1 expected < 1",
            id="a row is nested unevenly",
        ),
        pytest.param(
            '{"instances": [[[1], 2]]}',
            "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
            id="a value is too high up",
        ),
        pytest.param(
            '{"instances": ["one"]}',
            'JSON Value: "one" Type: String is not of expected type: float',
            id="a string stands for a float",
        ),
        pytest.param(
            '{"instances": [true]}',
            "JSON Value: true Type: True is not of expected type: float",
            id="a bool stands for a float",
        ),
        pytest.param(
            '{"signature_name": "add", "instances": [{"a": 1, "b": 1.0}]}',
            "JSON Value: 1.0 Type: Number is not of expected type: int64",
            id="a decimal stands for an integer",
        ),
        pytest.param(
            '{"signature_name": "add", "inputs": [1]}',
            "inputs is a plain value/list, but expecting an object as multiple input tensors "
            "required as per tensorinfo_map",
            id="columns lack their names",
        ),
        pytest.param(
            '{"signature_name": "add", "inputs": {"a": [1]}}',
            "Missing named input: b in 'inputs' object.",
            id="a column is missing",
        ),
        pytest.param(
            '{"signature_name": "echo", "instances": [{"b64": "!"}]}',
            "Unable to base64 decode",
            id="base64 is broken",
        ),
        pytest.param(
            '{"signature_name": "echo", "inputs": {"text": [{"b64": "QQ==", "c": 1}]}}',
            "not formatted correctly for base64 data",
            id="base64 has company",
        ),
        pytest.param(
            '{"signature_name": "total", "instances": [1]}',
            "Tensor name: y has no shape information ",
            id="an output has no rows",
        ),
        pytest.param(
            '{"signature_name": "uneven", "instances": [1]}',
            "Tensor name: z has inconsistent batch size: 2 expecting: 1",
            id="outputs differ in their rows",
        ),
        pytest.param(
            '{"signature_name": "half_precision", "instances": [1]}',
            "Failed to write JSON value for tensor type: half",
            id="an output has no JSON form",
        ),
    ],
)
def test_a_body_is_refused_when(zoo: Any, body: str | bytes, text: str) -> None:
    sent = body if isinstance(body, bytes) else body.encode()
    status, reply = zoo.rest("/v1/models/zoo:predict", sent)
    assert status == 400
    assert text in json.loads(reply)["error"]


@pytest.mark.parametrize(
    ("verb", "path", "status", "text"),
    [
        pytest.param(
            "GET",
            "/v1/models/half:predict",
            400,
            "Malformed request: GET /v1/models/half:predict",
            id="the verb is wrong",
        ),
        pytest.param(
            "POST",
            "/v1/models/half:multiInference",
            400,
            "Malformed request: POST /v1/models/half:multiInference",
            id="the method is one of gRPC",
        ),
        pytest.param(
            "POST",
            "/v1/models/half:predict?x",
            400,
            "Malformed request: POST /v1/models/half:predict?x",
            id="there is a query",
        ),
        pytest.param(
            "PUT",
            "/v1/models/half",
            400,
            "Malformed request: PUT /v1/models/half",
            id="the verb is unknown",
        ),
        pytest.param(
            "GET",
            "/v1/models/half/versions/1/labels/a",
            400,
            "Malformed request: GET /v1/models/half/versions/1/labels/a",
            id="version and label are given",
        ),
        pytest.param(
            "GET",
            "/v1/models/",
            400,
            "Malformed request: GET /v1/models/",
            id="the model is missing",
        ),
        pytest.param(
            "POST",
            "/v1/models/nope:predict",
            404,
            "Servable not found for request: Latest(nope)",
            id="the model is not served",
        ),
        pytest.param(
            "POST",
            "/v1/models/half/versions/9:predict",
            404,
            "Servable not found for request: Specific(half, 9)",
            id="the version is not loaded",
        ),
        pytest.param(
            "POST",
            "/v1/models/half/labels/canary:predict",
            400,
            "Unrecognized servable version label: canary",
            id="the label is unknown",
        ),
        pytest.param(
            "GET",
            "/v1/models/half?x",
            404,
            "Could not find any versions of model half?x",
            id="a query is part of the name",
        ),
        pytest.param(
            "GET",
            "/v1/models/half/versions/9",
            404,
            "Could not find version 9 of model half",
            id="the version was never seen",
        ),
        pytest.param(
            "GET",
            "/v1/models/nope/metadata",
            404,
            "Servable not found for request: Latest(nope)",
            id="metadata of a model that is not served",
        ),
        pytest.param(
            "POST",
            "/v1/models/half:reload",
            400,
            "Malformed request: POST /v1/models/half:reload",
            id="a reload is asked for",
        ),
        pytest.param(
            "PUT",
            "/v1/models/half",
            400,
            "Malformed request: PUT /v1/models/half",
            id="another configuration is put",
        ),
        pytest.param(
            "GET",
            "/v1/models/half/versions/99999999999999999999",
            400,
            "Failed to convert version: 99999999999999999999 to numeric.",
            id="the version is no int64",
        ),
    ],
)
def test_a_path_is_refused_when(
    half_plus_two: Any, verb: str, path: str, status: int, text: str
) -> None:
    body = b'{"instances": [1]}' if verb in ("POST", "PUT") else None
    code, reply = half_plus_two.rest(path, body, method=verb)
    assert (code, json.loads(reply)) == (status, {"error": text})


def test_a_path_outside_the_api_is_an_html_page(half_plus_two: Any) -> None:
    status, body = half_plus_two.rest("/index.html")
    assert status == 404
    assert body.startswith("<html>")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(
            '{"example": []}',
            "When method is classify, key 'examples' is expected and was not found",
            id="there are no examples",
        ),
        pytest.param(
            '{"examples": {}}',
            "Expecting 'examples' value to be an list/array",
            id="examples is no list",
        ),
        pytest.param('{"examples": []}', "'examples' value is an empty array", id="it is empty"),
        pytest.param(
            '{"examples": [1]}',
            "Example must be JSON object but got JSON Number",
            id="an example is a number",
        ),
        pytest.param(
            '{"examples": [{"x": null}]}',
            "Feature: x has element with unexpected JSON type: Null",
            id="a feature is null",
        ),
        pytest.param(
            '{"examples": [{"x": [1.5, "a"]}]}',
            "Unexpected element type in feature: x expecting type: float",
            id="a feature is mixed",
        ),
        pytest.param(
            '{"examples": [{"x": 18446744073709551615}]}',
            "Feature: x has uint64_t element. Only int64_t is supported.",
            id="a feature is beyond int64",
        ),
        pytest.param(
            '{"signature_name": "classify_x_to_y", "examples": [{"x": 2}]}',
            "Name: <unknown>, Key: x, Index: 0.  Data types don't match. "
            "Data type: int64 but expected type: float",
            id="an integer stands for a float",
        ),
    ],
)
def test_classify_refuses_when(half_plus_two: Any, body: str, text: str) -> None:
    status, reply = half_plus_two.rest("/v1/models/half:classify", body.encode())
    assert status == 400
    assert text in json.loads(reply)["error"]


def test_a_run_that_takes_too_long_is_ended(zoo_dir: Any, start_server: Any) -> None:
    server = start_server("zoo", zoo_dir, "--rest_api_timeout_in_ms=300")
    server.wait_ready()
    status, body = server.rest_predict({"signature_name": "spin", "inputs": 2**60})
    assert status == 504
    assert "Timed out" in json.loads(body)["error"]


def test_a_connection_is_kept_after_an_error(half_plus_two: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", half_plus_two.rest_port, timeout=60)
    try:
        for body, status in ((b"{", 400), (b'{"instances": [1]}', 200)):
            connection.request("POST", "/v1/models/half:predict", body)
            reply = connection.getresponse()
            assert reply.status == status
            assert reply.headers["Content-Type"] == "application/json"
            reply.read()
    finally:
        connection.close()


def test_a_long_message_is_whole_over_rest(zoo: Any) -> None:
    status, body = zoo.rest_predict({"signature_name": "complain", "instances": [1]})
    assert status == 400
    assert "x" * 3000 in json.loads(body)["error"]
