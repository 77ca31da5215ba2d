"""Requests that run together: TF Serving's parameters, and what it answers when they cannot."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from integration.serving.batched_server import NEVER_MICROS, WAIT_SECONDS, Batched, Rows
from integration.serving.grpc_calls import predict_request
from integration.serving.model_configs import model, write_config
from integration.serving.refused_starts import refused_start
from tensorflow_serving.apis import classification_pb2, predict_pb2


@pytest.fixture(scope="module")
def rows_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of a SavedModel with the functions of `Rows`."""
    module = Rows()
    base = tmp_path_factory.mktemp("rows") / "rows"
    names = ("pair", "count", "read", "nothing", "classify")
    signatures = {"serving_default": module.look, **{name: getattr(module, name) for name in names}}
    tf.saved_model.save(module, str(base / "1"), signatures=signatures)
    return base


@pytest.fixture(scope="module")
def batched(
    rows_dir: Path, tmp_path_factory: pytest.TempPathFactory, start_shared_server: Any
) -> Batched:
    """A server with two batch threads whose versions batch as they are configured to."""
    folder = tmp_path_factory.mktemp("batched")
    base = folder / "rows"
    shutil.copytree(rows_dir / "1", base / "1")
    policy = "model_version_policy { all {} }"
    config = write_config(folder / "models.txt", model("rows", base, policy))
    common = folder / "batching.txt"
    common.write_text("num_batch_threads { value: 2 }")
    server = start_shared_server(
        "rows",
        base,
        "--enable_batching",
        f"--batching_parameters_file={common}",
        "--enable_per_model_batching_parameters",
        f"--model_config_file={config}",
        "--rest_api_timeout_in_ms=1000",
    )
    server.wait_ready()
    return Batched(server, base, rows_dir / "1")


@pytest.fixture
def start(batched: Batched) -> Callable[[str], Batched]:
    """Serves a version with these batching parameters in text form."""

    def start(parameters: str) -> Batched:
        batched.add(parameters)
        return batched

    return start


def _request(
    x: Any, outputs: tuple[str, ...] = ("x", "rows", "sum"), signature: str = "", **inputs: Any
) -> predict_pb2.PredictRequest:
    request = predict_request("rows", signature, x=x, **inputs)
    request.output_filter.extend(outputs)
    return request


def _outputs(future: Any) -> dict[str, Any]:
    return {k: tf.make_ndarray(v).tolist() for k, v in future.result().outputs.items()}


def _refusal(future: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError):
        future.result()
    return future.code(), future.details()


def _parameters(size: int, timeout: int = NEVER_MICROS, queued: int = 10, more: str = "") -> str:
    return (
        f"max_batch_size {{ value: {size} }} batch_timeout_micros {{ value: {timeout} }} "
        f"max_enqueued_batches {{ value: {queued} }} {more}"
    )


def test_requests_run_together_and_each_gets_its_own_rows(start: Any) -> None:
    server = start(_parameters(6))
    sent = [np.full([n, 2], n, np.float32) for n in (1, 2, 3)]
    asked = [server.ask(_request(x)) for x in sent]
    for x, future in zip(sent, asked, strict=True):
        outputs = _outputs(future)
        assert outputs["x"] == x.tolist()
        assert outputs["rows"] == [6] * len(x)
        assert outputs["sum"] == [2.0 + 8.0 + 18.0] * len(x)


def test_strings_and_several_inputs_run_together(start: Any) -> None:
    server = start(_parameters(4))
    long = "l" * 100
    texts = [["a", long], ["b", ""]]
    asked = []
    for at, text in enumerate(texts):
        ids = np.array([at, 10 + at], np.int64)
        asked.append(server.ask(_request(None, ("b",), "pair", a=ids, b=text)))
    assert _outputs(asked[0])["b"] == [b"a0", long.encode() + b"10"]
    assert _outputs(asked[1])["b"] == [b"b1", b"11"]


def test_examples_run_together(start: Any) -> None:
    server = start(_parameters(2))
    asked = []
    for x in (1.0, 5.0):
        request = classification_pb2.ClassificationRequest()
        request.model_spec.name = "rows"
        request.model_spec.signature_name = "classify"
        example = request.input.example_list.examples.add()
        example.features.feature["x"].float_list.value.append(x)
        asked.append(server.server.prediction.Classify.future(request, timeout=WAIT_SECONDS))
    scores = [f.result().result.classifications[0].classes[0].score for f in asked]
    assert scores == [3.0, 7.0]


def test_a_batch_that_is_not_full_goes_when_its_first_request_has_waited(start: Any) -> None:
    server = start(_parameters(100, timeout=200_000))
    asked = [server.ask(_request([float(n)])) for n in range(3)]
    assert [_outputs(future)["rows"] for future in asked] == [[3], [3], [3]]


def test_other_outputs_have_a_queue_of_their_own(start: Any) -> None:
    server = start(_parameters(2))
    alone = server.ask(_request([1.0], ("x",)))
    asked = [server.ask(_request([1.0], outputs)) for outputs in (("rows", "x"), ("x", "rows"))]
    assert [_outputs(future)["rows"] for future in asked] == [[2], [2]]
    assert not alone.done()
    assert _outputs(server.ask(_request([2.0], ("x",)))) == {"x": [2.0]}
    assert _outputs(alone) == {"x": [1.0]}


def test_queues_take_turns(start: Any, tmp_path: Path) -> None:
    server = start(_parameters(1))
    gates = [tmp_path / "first", tmp_path / "second"]
    for gate in gates:
        os.mkfifo(gate)  # opening it blocks until a writer opens it
    held = [server.ask(_request(None, (), "read", file=[str(gate)])) for gate in gates]
    time.sleep(0.5)  # until both threads wait
    queues = [("turn",), ("turn", "x")]
    asked = {outputs: [_request([1.0], outputs, "count") for _ in range(3)] for outputs in queues}
    waiting = {k: [server.ask(request) for request in v] for k, v in asked.items()}
    time.sleep(0.5)  # until all batches do
    gates[0].write_text("")
    turns = [sorted(_outputs(one)["turn"][0] for one in waiting[outputs]) for outputs in queues]
    gates[1].write_text("")
    # TensorFlow opens pipes, and does not read them.
    assert all("Illegal seek" in _refusal(one)[1] for one in held)
    # One thread has run all, a batch of this queue and a batch of that.
    assert sorted(turns) == [[1, 3, 5], [2, 4, 6]]


def test_a_batch_is_padded_with_the_first_row_of_its_last_request(start: Any) -> None:
    server = start(
        _parameters(8, timeout=300_000, more="allowed_batch_sizes: 4 allowed_batch_sizes: 8")
    )
    first = server.ask(_request([1.0, 2.0]))
    time.sleep(0.1)  # so that it is the first
    last = server.ask(_request([10.0, 20.0, 30.0]))
    assert _outputs(first) == {"x": [1.0, 2.0], "rows": [8, 8], "sum": [93.0, 93.0]}
    assert _outputs(last) == {"x": [10.0, 20.0, 30.0], "rows": [8] * 3, "sum": [93.0] * 3}


def test_a_larger_request_than_a_batch_is_refused(start: Any) -> None:
    server = start(_parameters(8))
    assert _refusal(server.ask(_request([0.0] * 9))) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "Task size 9 is larger than maximum input batch size 8",
    )


def test_a_full_queue_refuses(start: Any) -> None:
    server = start(_parameters(2, queued=1))
    waiting = server.ask(_request([1.0]))
    time.sleep(0.2)  # until it waits
    text = (
        "The batch scheduling queue to which this task was submitted is full; currently 1 batches "
        "enqueued and max_enqueued_batches is 1"
    )
    code, details = _refusal(server.ask(_request([1.0, 2.0])))
    assert (code, details) == (grpc.StatusCode.UNAVAILABLE, text)
    assert _outputs(server.ask(_request([3.0])))["rows"] == [2]
    assert _outputs(waiting)["x"] == [1.0]


def test_a_request_whose_time_is_up_in_the_queue_is_refused(start: Any) -> None:
    server = start(_parameters(100, timeout=2_000_000))
    status, body = server.server.rest_predict({"inputs": [1.0]})
    assert (status, json.loads(body)["error"]) == (
        429,
        "Run() timeout exceeded while waiting in batching queue",
    )


@pytest.mark.parametrize(
    ("request_of", "code", "text"),
    [
        (
            lambda: _request(None, (), "nothing"),
            grpc.StatusCode.INVALID_ARGUMENT,
            "Batching Run() must have at least one input tensor",
        ),
        (
            lambda: _request(1.0),
            grpc.StatusCode.INVALID_ARGUMENT,
            "Batching Run() input tensors must have at least one dimension",
        ),
        (
            lambda: _request([1.0], ("total",)),
            grpc.StatusCode.FAILED_PRECONDITION,
            "Batched output tensor has 0 dimensions",
        ),
        (
            lambda: _request([1.0, 2.0], ("half",)),
            grpc.StatusCode.FAILED_PRECONDITION,
            "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension "
            "sizes of the input tensors",
        ),
    ],
    ids=["no input", "a scalar input", "a scalar output", "an output of another size"],
)
def test_what_cannot_be_part_of_a_batch_is_refused(
    start: Any, request_of: Any, code: grpc.StatusCode, text: str
) -> None:
    server = start(_parameters(4, timeout=0))
    assert _refusal(server.ask(request_of())) == (code, text)


def test_inputs_of_different_sizes_are_refused(start: Any) -> None:
    server = start(_parameters(4, timeout=0))
    request = _request(None, ("b",), "pair", a=np.array([1], np.int64), b=["a", "b"])
    assert _refusal(server.ask(request)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "Batching Run() input tensors must have equal 0th-dimension size",
    )


def test_a_request_of_a_wrong_type_fails_alone(start: Any) -> None:
    server = start(_parameters(3, timeout=300_000))
    good = [server.ask(_request([1.0])) for _ in range(2)]
    code, details = _refusal(server.ask(_request(np.array([1], np.int32))))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "to be float but int32 is provided" in details
    assert [_outputs(future)["rows"] for future in good] == [[2], [2]]


def test_requests_of_different_shapes_fail_together(start: Any) -> None:
    server = start(_parameters(2))
    asked = [server.ask(_request(np.ones([1, n], np.float32))) for n in (2, 3)]
    for future in asked:
        code, details = _refusal(future)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert details.startswith("Tensors with name 'serving_default_x:0' from different tasks")
        assert "have different shapes and padding is turned off." in details


def test_requests_of_different_shapes_are_padded_when_asked_for(start: Any) -> None:
    server = start(_parameters(3, more="pad_variable_length_inputs: true"))
    small = np.arange(4, dtype=np.float32).reshape(2, 1, 2) + 5
    large = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    asked = [server.ask(_request(x, ("x",))) for x in (small, large)]
    assert _outputs(asked[1])["x"] == large.tolist()
    # Filled with the tensor's own first value.
    assert _outputs(asked[0])["x"] == [
        [[5.0, 6.0, 5.0], [5.0, 5.0, 5.0]],
        [[7.0, 8.0, 5.0], [5.0, 5.0, 5.0]],
    ]


SPLIT = "enable_large_batch_splitting { value: true } max_execution_batch_size { value: 4 }"


def test_a_large_request_is_split_and_put_together_again(start: Any) -> None:
    server = start(_parameters(10, timeout=300_000, more=SPLIT))
    x = np.arange(20, dtype=np.float32).reshape(10, 2)
    outputs = _outputs(server.ask(_request(x)))
    assert outputs["x"] == x.tolist()
    assert outputs["rows"] == [4] * 8 + [2] * 2
    assert outputs["sum"] == [28.0] * 4 + [92.0] * 4 + [70.0] * 2


def test_a_queue_without_room_for_all_parts_refuses(start: Any) -> None:
    server = start(_parameters(10, queued=2, more=SPLIT))
    waiting = server.ask(_request([1.0]))
    time.sleep(0.2)  # until it waits
    code, details = _refusal(server.ask(_request([0.0] * 8)))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert details == (
        "The batch scheduling queue to which this task was submitted is full; task size is 8 but "
        "scheduling capacity is only 7 (num_enqueued_batches=1, max_enqueued_batches=2, "
        "open_batch_size=1, max_execution_batch_size=4)"
    )
    assert _outputs(server.ask(_request([2.0] * 3)))["rows"] == [4] * 3
    assert _outputs(waiting)["rows"] == [4]


def test_a_version_without_parameters_does_not_batch(batched: Batched) -> None:
    request = _request([1.0])
    request.model_spec.version.value = 1
    assert _outputs(batched.server.prediction.Predict.future(request))["rows"] == [1]


def test_parameters_change_while_it_serves(
    rows_dir: Path, tmp_path: Path, start_server: Any
) -> None:
    file = tmp_path / "batching.txt"
    file.write_text(_parameters(2))
    server = start_server(
        "rows", rows_dir, "--enable_batching", f"--batching_parameters_file={file}"
    )
    server.wait_ready()

    def ask_all(count: int) -> list[Any]:
        asked = [server.prediction.Predict.future(_request([1.0])) for _ in range(count)]
        return [_outputs(future)["rows"] for future in asked]

    assert ask_all(2) == [[2], [2]]
    file.write_text("max_batch_size: many")
    server.wait_for_log("batching parameters are not changed")
    file.write_text(_parameters(3, more="num_batch_threads { value: 1 }"))
    server.wait_for_log("batching parameters changed: 1 threads")
    assert ask_all(3) == [[3], [3], [3]]


def test_parameters_without_batching_are_refused(rows_dir: Path, tmp_path: Path) -> None:
    line = refused_start("rows", rows_dir, f"--batching_parameters_file={tmp_path}/any")[-1]
    assert "server_options.batching_parameters_file is set without setting" in line


def test_a_server_with_wrong_parameters_does_not_start(
    rows_dir: Path, tmp_path: Path, start_server: Any
) -> None:
    file = tmp_path / "batching.txt"
    file.write_text("max_batch_size { value: 8 } allowed_batch_sizes: 4")
    flags = ("--enable_batching", f"--batching_parameters_file={file}")
    server = start_server("rows", rows_dir, *flags)
    assert server.wait_exit() == 255
    text = "Last entry in allowed_batch_sizes must match max_batch_size"
    assert any(text in line for line in server.log)
