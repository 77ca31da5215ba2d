"""Requests that a server of our own export refuses, and the errors."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from free_ports import free_port
from integration.small_run import make_run, one_error, write_malformed
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from hotrow.cli.main import main

INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a configuration, a trained run `run` and its export `models/m/1`."""
    return make_run(tmp_path_factory.mktemp("work"))


RefusalOf = Callable[..., str]


@pytest.fixture
def refusal_of(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> RefusalOf:
    """Runs a command in the folder; returns its one line, checks its code and that it is alone."""
    monkeypatch.chdir(work)

    def run(*arguments: Any, code: int) -> str:
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == code
        printed = capsys.readouterr()
        assert printed.out == ""
        return one_error(printed.err)

    return run


class Served:
    """A running server of `models/m`, with its two ports."""

    def __init__(self, port: int, rest_port: int) -> None:
        self.port, self.rest_port = port, rest_port

    def refusal(self, **inputs: Any) -> tuple[grpc.StatusCode, str]:
        """Returns the status of a Predict request that must be refused."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "m"
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                stub.Predict(request, timeout=30)
        return caught.value.code(), caught.value.details()

    def rest_refusal(self, body: Any) -> tuple[int, str]:
        """Returns HTTP status and error of a REST predict request that must be refused."""
        url = f"http://127.0.0.1:{self.rest_port}/v1/models/m:predict"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30)
        with caught.value as reply:
            return reply.code, json.loads(reply.read())["error"]


@pytest.fixture(scope="module")
def served(work: Path) -> Iterator[Served]:
    port, rest_port = free_port(), free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "hotrow.cli.main", "serve", "--model_name=m"),
            *(f"--model_base_path={work}/models/m", f"--port={port}"),
            f"--rest_api_port={rest_port}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("Serving m version 1: ")
        yield Served(port, rest_port)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


GOOD: dict[str, Any] = {
    "I1": np.array([1], np.float32),
    "I2": np.array([2], np.float32),
    "C1": np.array([b"a"]),
    "C2": np.array([b"b"]),
}


def test_a_request_with_a_missing_input_lists_what_is_expected(served: Served) -> None:
    inputs = {name: value for name, value in GOOD.items() if name != "C2"}
    code, text = served.refusal(**inputs)
    assert code is INVALID
    assert "C2" in text
    assert "\n" not in text
    status, error = served.rest_refusal({"instances": [{"I1": 1.0, "I2": 2.0, "C1": "a"}]})
    assert status == 400
    assert error.endswith("keys must be equal to: C1,C2,I1,I2")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        pytest.param(
            "I1", np.array([1], np.int64), "to be float but int64 is provided", id="an integer"
        ),
        pytest.param(
            "C1", np.array([1], np.int64), "to be string but int64 is provided", id="a raw key"
        ),
        pytest.param("I2", np.array([b"2"]), "to be float but string is provided", id="a text"),
    ],
)
def test_a_request_with_a_wrong_dtype_says_what_it_should_be(
    served: Served, name: str, value: Any, said: str
) -> None:
    code, text = served.refusal(**{**GOOD, name: value})
    assert code is INVALID
    assert text.endswith(said)


def test_a_rest_request_with_a_wrong_type_names_input_and_value(served: Served) -> None:
    row = {"I1": 1.0, "I2": 2.0, "C1": 5, "C2": "b"}
    assert served.rest_refusal({"instances": [row]}) == (
        400,
        "Failed to process element: 0 key: C1 of 'instances' list. Error: INVALID_ARGUMENT: "
        "JSON Value: 5 Type: Number is not of expected type: string",
    )


@pytest.fixture
def malformed(work: Path, tmp_path: Path) -> Path:
    return write_malformed(work, tmp_path)


def test_predict_names_a_malformed_line_of_its_file(
    served: Served, refusal_of: RefusalOf, malformed: Path
) -> None:
    server = ["--server", f"127.0.0.1:{served.port}", "--model", "m"]
    line = refusal_of("predict", *server, "--data", malformed, code=1)
    assert line.startswith(f"{malformed}: line 301: 1 fields, not 40: ")
