"""Another configuration while a server runs: by HandleReloadConfigRequest, and from the file."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
import tensorflow as tf
from google.protobuf import text_format
from integration.serving.model_configs import (
    WAIT_SECONDS,
    ask,
    label,
    model,
    publish,
    refusal,
    reload,
    specific,
    states,
    wait_for,
    write_config,
)
from tensorflow_serving.apis import model_management_pb2, prediction_log_pb2
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

NO_RETRY = "--max_num_load_retries=0"
GONE = ("NOT_FOUND", "Servable not found for request: Latest(two)")


@pytest.fixture
def server(two: Path, start_server: Any) -> Any:
    """A server of one model, `two`."""
    server = start_server("two", two.parent, NO_RETRY)
    server.wait_ready()
    return server


def test_a_new_model_serves_when_the_call_returns(server: Any, two: Path, three: Path) -> None:
    reply = reload(server, model("two", two.parent), model("three", three.parent))
    assert (reply.status.error_code, reply.status.error_message) == (0, "")
    assert ask(server, "three") == (4.0, 123)
    assert ask(server, "two") == (3.0, 123)


def test_a_model_that_is_left_out_unloads(server: Any, three: Path) -> None:
    reload(server, model("three", three.parent))
    wait_for(server, "two", {123: "END"})
    assert refusal(lambda: ask(server, "two")) == GONE
    assert states(server, "three") == {123: "AVAILABLE"}


def test_a_model_that_was_left_out_comes_back(server: Any, two: Path) -> None:
    reload(server)
    wait_for(server, "two", {123: "END"})
    reload(server, model("two", two.parent))
    assert ask(server, "two") == (3.0, 123)


def test_a_model_gets_another_base_path_and_policy(server: Any, two: Path, tmp_path: Path) -> None:
    base = publish(two, tmp_path / "other", 200, 201, 202)
    reload(server, model("two", base, specific(200, 202)))
    wait_for(server, "two", {202: "AVAILABLE", 200: "AVAILABLE", 123: "END"})


def test_nothing_is_lost_while_models_are_exchanged(server: Any, two: Path, tmp_path: Path) -> None:
    base = publish(two, tmp_path / "other", 200)
    stop = threading.Event()
    versions: set[int] = set()
    failures: list[grpc.RpcError] = []
    asked = threading.Event()

    def send() -> None:
        while not stop.is_set():
            try:
                versions.add(ask(server, "two")[1])
            except grpc.RpcError as err:
                failures.append(err)
            asked.set()

    client = threading.Thread(target=send)
    client.start()
    assert asked.wait(WAIT_SECONDS)
    try:
        reload(server, model("two", base))
        wait_for(server, "two", {200: "AVAILABLE", 123: "END"})
    finally:
        stop.set()
        client.join()
    assert not failures
    assert 123 in versions


def test_a_new_model_that_cannot_be_loaded_is_the_answer(
    server: Any, two: Path, three: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad" / "5").mkdir(parents=True)
    code, text = refusal(
        lambda: reload(
            server,
            model("two", two.parent),
            model("bad", tmp_path / "bad"),
            model("three", three.parent),
        )
    )
    assert code == "UNKNOWN"
    assert text.startswith(
        "1 model(s) did not become available: {{{name: bad version: 5} due to error: NOT_FOUND: "
    )
    # The configuration holds all the same.
    assert ask(server, "three") == (4.0, 123)
    assert ask(server, "two") == (3.0, 123)
    assert states(server, "bad") == {5: "END"}


def test_a_new_model_without_versions_is_waited_for_until_the_caller_leaves(
    server: Any, two: Path, three: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    empty = model("empty", tmp_path / "empty")
    waits = refusal(lambda: reload(server, model("two", two.parent), empty, timeout=0.5))
    assert waits[0] == "DEADLINE_EXCEEDED"
    # Others need not wait for it, nor for each other.
    reload(server, model("two", two.parent), empty, model("three", three.parent))
    assert ask(server, "three") == (4.0, 123)
    publish(two, tmp_path / "empty", 1)
    wait_for(server, "empty", {1: "AVAILABLE"})
    assert ask(server, "empty") == (3.0, 1)


def _refused(server: Any, name: str) -> str:
    try:
        ask(server, name)
    except grpc.RpcError as err:
        return str(err.details())
    return ""


def _configures(server: Any, *models: str) -> bool:
    """Reloads; returns False where the file was read again before the models were available."""
    try:
        reload(server, *models)
    except grpc.RpcError as err:
        if err.code() is not grpc.StatusCode.ABORTED:
            raise
        return False
    return True


def test_a_wait_ends_when_its_model_is_removed_again(
    server: Any, two: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    answers: list[tuple[str, str]] = []
    waiting = threading.Thread(
        target=lambda: answers.append(
            refusal(
                lambda: reload(server, model("two", two.parent), model("empty", tmp_path / "empty"))
            )
        )
    )
    waiting.start()
    server.wait_for_log("No versions of servable empty found")
    reload(server, model("two", two.parent))
    waiting.join(WAIT_SECONDS)
    assert answers == [
        (
            "ABORTED",
            "Model empty was removed from the configuration before it became available",
        )
    ]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        pytest.param(
            "",
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
            "ModelConfigList is currently supported",
            id="nothing",
        ),
        pytest.param(
            "custom_model_config {}",
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
            "ModelConfigList is currently supported",
            id="a custom configuration",
        ),
        pytest.param(
            f"model_config_list {{ {model('m', '/m')} {model('m', '/n')} }}",
            "Illegal to list model m multiple times in config list",
            id="a name twice",
        ),
        pytest.param(
            f"model_config_list {{ {model('m', 'models/m')} }}",
            "Expected model m to have an absolute path or URI; got base_path()=models/m",
            id="a relative path",
        ),
        pytest.param(
            'model_config_list { config { name: "two" base_path: "/m" model_platform: "torch" } }',
            "Illegal to change a model's platform. For model two platform was tensorflow and new "
            "platform requested is torch",
            id="a platform that changes",
        ),
        pytest.param(
            'model_config_list { config { name: "m" base_path: "/m" model_platform: "torch" } }',
            "Model m requests unsupported platform torch",
            id="another platform",
        ),
        pytest.param(
            'model_config_list { config { name: "m" base_path: "/m" } }',
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            "ModelServerConfig::model_platform, model name is m",
            id="no platform",
        ),
    ],
)
def test_what_is_refused_changes_nothing(server: Any, text: str, refused: str) -> None:
    config = text_format.Parse(text, ModelServerConfig())
    request = model_management_pb2.ReloadConfigRequest(config=config)
    assert refusal(lambda: server.models.HandleReloadConfigRequest(request, timeout=30)) == (
        "INVALID_ARGUMENT",
        refused,
    )
    assert ask(server, "two") == (3.0, 123)


def test_status_keeps_the_versions_of_every_model_there_was(
    server: Any, two: Path, tmp_path: Path
) -> None:
    base = publish(two, tmp_path / "other", 5, 7)
    reload(server, model("two", base))
    wait_for(server, "two", {123: "END", 7: "AVAILABLE"})
    reload(server)
    wait_for(server, "two", {123: "END", 7: "END"})
    _, body = server.rest("/v1/models/two")
    listed = [entry["version"] for entry in json.loads(body)["model_version_status"]]
    assert listed == ["123", "7"]
    assert refusal(lambda: states(server, "never")) == (
        "NOT_FOUND",
        "Could not find any versions of model never",
    )


def test_the_file_is_read_again_every_period(
    two: Path, three: Path, tmp_path: Path, start_server: Any
) -> None:
    path = write_config(tmp_path / "models.txt", model("two", two.parent))
    server = start_server(
        "ignored", "", f"--model_config_file={path}", "--model_config_file_poll_wait_seconds=0.1"
    )
    server.wait_ready()
    # The server does not wait for a model of the file that has no version.
    write_config(path, model("two", two.parent), model("empty", tmp_path))
    server.wait_for_log("No versions of servable empty found")
    write_config(path, model("three", three.parent))
    wait_for(server, "two", {123: "END"})
    server.wait_for_log("three: version 123 is available")
    assert ask(server, "three") == (4.0, 123)


def test_a_file_that_is_bad_meanwhile_is_reported_and_ignored(
    two: Path, three: Path, tmp_path: Path, start_server: Any
) -> None:
    path = write_config(tmp_path / "models.txt", model("two", two.parent))
    server = start_server(
        "ignored", "", f"--model_config_file={path}", "--model_config_file_poll_wait_seconds=0.05"
    )
    server.wait_ready()
    (tmp_path / "bad").write_text("improperly formatted file")
    (tmp_path / "bad").rename(path)
    bad = f"Failed to read ModelServerConfig file: Invalid protobuf file: '{path}'"
    server.wait_for_log(bad)
    path.unlink()
    server.wait_for_log(f"Failed to read ModelServerConfig file: {path}; No such file or directory")
    write_config(path, model("two", two.parent), model("two", two.parent))
    server.wait_for_log(
        "PollFilesystemAndReloadConfig failed to ReloadConfig: Illegal to list model two multiple "
        "times in config list"
    )
    write_config(path, model("two", two.parent, label("stable", 5)))
    server.wait_for_log(
        "failed to ReloadConfig: Request to assign label to version 5 of model two, which is not"
    )
    assert ask(server, "two") == (3.0, 123)
    assert server.log.count(bad) == 1
    write_config(path, model("three", three.parent))
    server.wait_for_log("three: version 123 is available")


def test_what_a_call_configured_lasts_until_the_file_is_read_again(
    two: Path, three: Path, tmp_path: Path, start_server: Any
) -> None:
    path = write_config(tmp_path / "models.txt", model("two", two.parent))
    server = start_server(
        "ignored", "", f"--model_config_file={path}", "--model_config_file_poll_wait_seconds=3"
    )
    server.wait_ready()
    end = time.monotonic() + WAIT_SECONDS
    while not _configures(server, model("three", three.parent)):
        assert time.monotonic() < end
    server.wait_for_log("three: version 123 is unloaded")
    end = time.monotonic() + WAIT_SECONDS
    while _refused(server, "two"):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert "model_config_list" in path.read_text()


def test_the_reply_shows_how_much_metrics_have_grown(
    server: Any, two: Path, tmp_path: Path
) -> None:
    publish(two, tmp_path / "warm", 1)
    extra = tmp_path / "warm" / "1" / "assets.extra"
    extra.mkdir(exist_ok=True)
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.inputs["x"].CopyFrom(tf.make_tensor_proto([2.0], tf.float32))
    with tf.io.TFRecordWriter(str(extra / "tf_serving_warmup_requests")) as writer:
        for _ in range(3):
            writer.write(log.SerializeToString())
    ask(server, "two")
    models = [model("two", two.parent), model("warm", tmp_path / "warm")]
    request = model_management_pb2.ReloadConfigRequest(
        config=text_format.Parse(
            f"model_config_list {{ {' '.join(models)} }}", ModelServerConfig()
        ),
        metric_names=[
            "/tensorflow/serving/model_warmup_records_read",
            ":tensorflow:serving:request_count",
            "/nobody/knows",
            "/nobody/knows",
        ],
    )
    reply = server.models.HandleReloadConfigRequest(request, timeout=WAIT_SECONDS)
    assert reply.status.error_code == 0
    assert [(metric.name, metric.int64_value_increase) for metric in reply.metric] == [
        ("/tensorflow/serving/model_warmup_records_read", 3),
        (":tensorflow:serving:request_count", 0),
        ("/nobody/knows", 0),
    ]
