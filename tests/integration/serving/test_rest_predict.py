"""`:predict`, `:classify` and `:regress` over REST: what is sent and what comes back."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest


def test_row_form_with_plain_values_is_laid_out_as_tensorflow_serving_does(
    half_plus_two: Any,
) -> None:
    status, body = half_plus_two.rest_predict({"instances": [1.0, 2.0, 5.0]})
    assert status == 200
    assert body == '{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}'


def test_row_form_with_named_inputs_gives_bare_values_for_one_output(half_plus_two: Any) -> None:
    _, body = half_plus_two.rest_predict({"instances": [{"x": [1.0]}, {"x": [2]}]})
    assert json.loads(body) == {"predictions": [[2.5], [3.0]]}


def test_columnar_form_takes_lists_and_scalars(half_plus_two: Any) -> None:
    _, body = half_plus_two.rest_predict({"inputs": [[1.0], [2.0]]})
    assert json.loads(body) == {"outputs": [[2.5], [3.0]]}
    _, body = half_plus_two.rest_predict({"inputs": {"x": 3, "surplus": "ignored"}})
    assert body == '{\n    "outputs": 3.5\n}'


def test_several_inputs_and_outputs_are_objects_in_both_forms(zoo: Any) -> None:
    rows = [{"a": 0.5, "b": 1}, {"a": 1e-3, "b": -2}]
    _, body = zoo.rest_predict({"signature_name": "add", "instances": rows})
    assert json.loads(body) == {"predictions": [{"sum": 1.5, "b": 1}, {"sum": -1.999, "b": -2}]}
    inputs = {"a": [0.5], "b": [9007199254740993]}
    _, body = zoo.rest_predict({"signature_name": "add", "inputs": inputs})
    assert json.loads(body)["outputs"]["b"] == [9007199254740993]


def test_strings_go_and_come_as_text_or_as_base64(zoo: Any) -> None:
    rows = ["grün", {"b64": "Z3LDvG4="}]
    status, body = zoo.rest_predict({"signature_name": "echo", "instances": rows})
    assert status == 200
    assert json.loads(body) == {
        "predictions": [{"text": "grün", "text_bytes": {"b64": "Z3LDvG4="}}] * 2
    }


def test_bytes_that_are_no_text_come_back_as_they_went(zoo: Any) -> None:
    request = json.dumps({"signature_name": "echo", "inputs": [{"b64": "/wA="}]}).encode()
    url = f"http://127.0.0.1:{zoo.rest_port}/v1/models/zoo:predict"
    with urllib.request.urlopen(url, request, timeout=60) as reply:
        assert b'"\xff\\u0000"' in reply.read()


def test_bools_and_doubles_keep_their_value(zoo: Any) -> None:
    _, body = zoo.rest_predict({"signature_name": "kinds", "instances": [True, False]})
    assert json.loads(body) == {
        "predictions": [{"no": False, "third": 1 / 3}, {"no": True, "third": 1 / 3}]
    }


def test_numbers_that_json_does_not_know_are_read_and_written(half_plus_two: Any) -> None:
    request = b'{"instances": [NaN, Infinity, -Infinity, Inf, -Inf, 1e300]} and a tail'
    status, body = half_plus_two.rest("/v1/models/half:predict", request)
    assert status == 200
    assert body == (
        '{\n    "predictions": [NaN, Infinity, -Infinity, Infinity, -Infinity, Infinity\n    ]\n}'
    )


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/v1/models/half:predict", id="newest version"),
        pytest.param("/v1/models/half/versions/123:predict", id="named version"),
        pytest.param("/V1/MODELS/half/Versions/00123:PREDICT", id="any case"),
        pytest.param("/v1/models/h%61lf:predict", id="percent-encoded name"),
    ],
)
def test_a_model_is_found_at(half_plus_two: Any, path: str) -> None:
    status, body = half_plus_two.rest(path, b'{"instances": [2]}')
    assert (status, json.loads(body)) == (200, {"predictions": [3.0]})


def test_classify_gives_label_and_score_of_each_class(half_plus_two: Any) -> None:
    status, body = half_plus_two.rest_predict(
        {"signature_name": "classify_x_to_y", "examples": [{"x": 2.0}, {"x": [3.5]}]}, "classify"
    )
    assert (status, json.loads(body)) == (200, {"results": [[["", 3.0]], [["", 3.75]]]})


def test_regress_gives_a_value_for_each_example_and_uses_the_context(half_plus_two: Any) -> None:
    status, body = half_plus_two.rest_predict(
        {"signature_name": "regress_x_to_y", "context": {"x": 8.0}, "examples": [{}, {"x": 2.0}]},
        "regress",
    )
    assert (status, json.loads(body)) == (200, {"results": [6.0, 3.0]})
