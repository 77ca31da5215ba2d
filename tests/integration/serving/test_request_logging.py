"""Requests that are logged: files of PredictionLog at the prefix of a model's logging_config."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from integration.serving.metrics_page import samples_of
from integration.serving.model_configs import (
    WAIT_SECONDS,
    ask,
    label,
    model,
    refusal,
    reload,
    wait_for,
    write_config,
)
from integration.serving.request_log_files import files, logging, records, wait_for_records
from integration.serving.server_processes import control_of, data_plane_of
from integration.serving.visits import save_visits, visits_of
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    inference_pb2,
    predict_pb2,
    regression_pb2,
)

Serve = Callable[..., Any]
LOG_COUNT = ":tensorflow:serving:request_log_count"


@pytest.fixture(scope="module")
def base(testdata: Path) -> Path:
    """A base path of half_plus_two: 2.0 becomes 3.0."""
    return testdata / "saved_model_half_plus_two_cpu"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Where requests are logged, in a folder of their own."""
    (tmp_path / "requests").mkdir()
    return tmp_path / "requests" / "half"


@pytest.fixture
def serve(start_server: Any, tmp_path: Path) -> Serve:
    """Starts a server of these models, with metrics."""

    def start(*models: str, flags: tuple[str, ...] = ()) -> Any:
        path = write_config(tmp_path / "models.txt", *models)
        (tmp_path / "monitoring").write_text("prometheus_config { enable: true }")
        monitoring = f"--monitoring_config_file={tmp_path}/monitoring"
        server = start_server("half", "", f"--model_config_file={path}", monitoring, *flags)
        server.wait_ready()
        return server

    return start


def _examples(request: Any, signature: str) -> Any:
    request.model_spec.name = "half"
    request.model_spec.signature_name = signature
    _add_example(request)
    return request


def _add_example(request: Any) -> None:
    example = request.input.example_list.examples.add()
    example.features.feature["x"].float_list.value.append(2.0)


def _several() -> inference_pb2.MultiInferenceRequest:
    request = inference_pb2.MultiInferenceRequest()
    for kind in ("classify", "regress"):
        task = request.tasks.add(method_name=f"tensorflow/serving/{kind}")
        task.model_spec.name = "half"
        task.model_spec.signature_name = f"{kind}_x_to_y"
    _add_example(request)
    return request


@pytest.mark.parametrize("flags", [(), ("--enable_batching",)], ids=["alone", "in batches"])
def test_requests_are_logged_with_what_answered_them(
    base: Path, prefix: Path, serve: Serve, flags: tuple[str, ...]
) -> None:
    server = serve(model("half", base, logging(prefix)), flags=flags)
    predict = predict_pb2.PredictRequest()
    predict.model_spec.name = "half"
    predict.inputs["x"].float_val.extend([2.0, 4.0])
    predict.inputs["x"].dtype = 1
    predict.inputs["x"].tensor_shape.dim.add(size=2)
    classify = _examples(classification_pb2.ClassificationRequest(), "classify_x_to_y")
    regress = _examples(regression_pb2.RegressionRequest(), "regress_x_to_y")
    several = _several()
    stub = server.prediction
    begun = int(time.time())
    expected = [
        ("predict_log", predict, stub.Predict(predict, timeout=30), "serving_default"),
        ("classify_log", classify, stub.Classify(classify, timeout=30), "classify_x_to_y"),
        ("regress_log", regress, stub.Regress(regress, timeout=30), "regress_x_to_y"),
        ("multi_inference_log", several, stub.MultiInference(several, timeout=30), ""),
    ]
    logged = wait_for_records(prefix, 4)
    assert [record.WhichOneof("log_type") for record in logged] == [name for name, *_ in expected]
    for record, (name, request, reply, signature) in zip(logged, expected, strict=True):
        assert getattr(record, name).request == request
        assert getattr(record, name).response == reply
        metadata = record.log_metadata
        assert metadata.model_spec.name == "half"
        assert metadata.model_spec.version.value == 123
        assert metadata.model_spec.signature_name == signature
        assert metadata.sampling_config.sampling_rate == 1
        assert list(metadata.saved_model_tags) == ["serve"]
        assert begun <= metadata.timestamp_secs <= time.time()
    assert samples_of(server)[f'{LOG_COUNT}{{model_name="half",status_code="OK"}}'] == 4


def test_requests_over_rest_are_logged_too(base: Path, prefix: Path, serve: Serve) -> None:
    server = serve(model("half", base, logging(prefix, kind="")))
    assert server.rest_predict({"instances": [2.0]})[0] == 200
    body = {"signature_name": "regress_x_to_y", "examples": [{"x": 2.0}]}
    assert server.rest_predict(body, "regress")[0] == 200
    predicted, regressed = wait_for_records(prefix, 2)
    assert list(predicted.predict_log.response.outputs["y"].float_val) == [3.0]
    assert [one.value for one in regressed.regress_log.response.result.regressions] == [3.0]


def test_what_has_no_answer_of_a_model_is_not_logged(
    base: Path, prefix: Path, serve: Serve
) -> None:
    server = serve(model("half", base, logging(prefix)), model("other", base))
    with pytest.raises(grpc.RpcError):
        server.predict(nothing=np.float32(1))
    metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    metadata.model_spec.name = "half"
    server.prediction.GetModelMetadata(metadata, timeout=30)
    ask(server, "other")
    ask(server, "half")
    assert server.terminate() == 0
    (record,) = records(*files(prefix))
    assert record.log_metadata.model_spec.name == "half"


def test_a_logged_file_warms_up_the_next_version(tmp_path: Path, serve: Serve) -> None:
    visits = tmp_path / "visits"
    save_visits(visits / "1")
    text = model("visits", visits, logging(tmp_path / "log"))
    server = serve(text)
    server.model = "visits"
    for rows in (3, 4):
        server.predict(x=np.zeros(rows, np.float32))
    wait_for_records(tmp_path / "log", 2)
    (logged,) = files(tmp_path / "log")
    shutil.copytree(visits / "1", visits / ".2")
    (visits / ".2" / "assets.extra").mkdir()
    shutil.copy(logged, visits / ".2" / "assets.extra" / "tf_serving_warmup_requests")
    (visits / ".2").rename(visits / "2")
    wait_for(server, "visits", {2: "AVAILABLE", 1: "END"})
    assert visits_of(server) == 3 + 4
    # Warm-up is no request of a client.
    assert server.terminate() == 0
    assert len(records(*files(tmp_path / "log"))) == 2 + 1


def test_a_sample_of_the_requests_is_logged_and_nothing_at_a_rate_of_0(
    base: Path, prefix: Path, serve: Serve
) -> None:
    prefixes = {0: prefix / "none", 0.5: prefix / "some", 1: prefix / "all"}
    prefix.mkdir()
    server = serve(
        *[model(path.name, base, logging(path, rate)) for rate, path in prefixes.items()]
    )
    for path in prefixes.values():
        for _ in range(400):
            ask(server, path.name)
    # What is in memory is written at the end.
    assert server.terminate() == 0
    counts = {rate: len(records(*files(path))) for rate, path in prefixes.items()}
    assert counts[0] == 0
    assert not files(prefixes[0])
    # 7 standard deviations around 200.
    assert 130 <= counts[0.5] <= 270
    assert counts[1] == 400


def test_models_with_the_same_prefix_share_its_files(
    base: Path, prefix: Path, serve: Serve
) -> None:
    server = serve(model("one", base, logging(prefix)), model("two", base, logging(prefix)))
    for name in ("one", "two", "one"):
        ask(server, name)
    names = [record.log_metadata.model_spec.name for record in wait_for_records(prefix, 3)]
    assert names == ["one", "two", "one"]
    assert len(files(prefix)) == 1


def test_a_reload_begins_it_moves_it_and_ends_it(base: Path, prefix: Path, serve: Serve) -> None:
    server = serve(model("half", base))
    other = prefix.with_name("moved")
    for fields in ([], [logging(prefix)], [logging(other)], [logging(prefix, 0)], []):
        reload(server, model("half", base, *fields))
        ask(server, "half")
    assert server.terminate() == 0
    assert len(records(*files(prefix))) == 1
    assert len(records(*files(other))) == 1


def test_the_file_that_is_read_again_begins_and_ends_it(
    base: Path, prefix: Path, tmp_path: Path, serve: Serve
) -> None:
    server = serve(model("half", base), flags=("--model_config_file_poll_wait_seconds=0.1",))
    write_config(tmp_path / "models.txt", model("half", base, logging(prefix)))
    end = time.monotonic() + WAIT_SECONDS
    while not files(prefix):
        assert time.monotonic() < end
        ask(server, "half")
        time.sleep(0.05)
    # A file that is wrong changes nothing.
    write_config(tmp_path / "models.txt", model("half", base, logging(prefix, 2)))
    server.wait_for_log("sampling_rate 2.0 is out of range")
    before = len(records(*files(prefix)))
    ask(server, "half")
    end = time.monotonic() + WAIT_SECONDS
    while len(records(*files(prefix))) <= before:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_no_reload_moves_it_out_of_its_root(base: Path, prefix: Path, serve: Serve) -> None:
    root = prefix.parent
    outside = root.parent / "outside"
    outside.mkdir()
    (root / "link").symlink_to(outside)
    server = serve(model("half", base), flags=(f"--request_log_root={root}",))
    reload(server, model("half", base, logging(prefix)))
    for other in (outside / "shop", root / "link" / "shop", root / ".." / "outside" / "shop"):
        fields = logging(other)
        code, text = refusal(lambda fields=fields: reload(server, model("half", base, fields)))
        assert code == "PERMISSION_DENIED"
        assert text == (
            f"model half: filename_prefix '{other}' is not below --request_log_root {root}"
        )
    ask(server, "half")
    wait_for_records(prefix, 1)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        (
            logging("/tmp/requests", kind="kafka"),
            "NOT_FOUND",
            'Cannot find LogCollector::Factory for type: kafka; model half needs "" or "file"',
        ),
        (
            logging("requests"),
            "INVALID_ARGUMENT",
            "model half: filename_prefix 'requests' is no absolute path; give one such as "
            "/var/log/requests/shop, in a folder that is there",
        ),
    ],
    ids=["an unknown type", "a relative prefix"],
)
def test_what_cannot_be_done_is_refused_and_what_was_goes_on(
    base: Path, prefix: Path, serve: Serve, fields: str, code: str, text: str
) -> None:
    server = serve(model("half", base, logging(prefix)))
    assert refusal(lambda: reload(server, model("half", base, fields))) == (code, text)
    ask(server, "half")
    wait_for_records(prefix, 1)


def test_a_server_does_not_start_with_an_unknown_type(
    base: Path, tmp_path: Path, start_server: Any
) -> None:
    path = write_config(tmp_path / "models.txt", model("half", base, logging("/tmp/x", kind="s3")))
    server = start_server("half", "", f"--model_config_file={path}")
    assert server.wait_exit() == 255
    assert server.log[-1].startswith(
        "Failed to start server. Error: Cannot find LogCollector::Factory for type: s3"
    )


def test_it_goes_on_when_a_process_is_started_again(base: Path, prefix: Path, serve: Serve) -> None:
    server = serve(model("half", base))
    # Not what is in the file, but what was applied last.
    reload(server, model("half", base, logging(prefix), label("stable", 123)))
    ask(server, "half")
    wait_for_records(prefix, 1)
    os.kill(control_of(server), signal.SIGKILL)
    ask(server, "half", label="stable")
    wait_for_records(prefix, 2)
    server.wait_for_log("the control process serves again")
    ask(server, "half")
    wait_for_records(prefix, 3)
    os.kill(data_plane_of(server), signal.SIGKILL)
    server.wait_for_log("hotrow-server serves again")
    ask(server, "half")
    wait_for_records(prefix, 4)
    assert len(files(prefix)) == 2
