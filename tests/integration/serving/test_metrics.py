"""Metrics for Prometheus: TF Serving's names, labels and buckets, and ours."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from integration.serving.metrics_page import PATH, page_of, samples_of
from integration.serving.model_configs import model, reload
from integration.serving.refused_starts import refused_start
from integration.serving.server_processes import control_of, data_plane_of
from integration.serving.visits import save_visits
from tensorflow_serving.apis import classification_pb2, predict_pb2, prediction_log_pb2

from hotrow.serving.monitoring.prometheus import read_metrics_path


@pytest.fixture
def monitored(base: Path, tmp_path: Path, start_server: Any) -> Any:
    """A server of half_plus_two with metrics at the usual path."""
    (tmp_path / "monitoring").write_text("prometheus_config { enable: true }")
    server = start_server("half", base, f"--monitoring_config_file={tmp_path}/monitoring")
    server.wait_ready()
    return server


def _ask(server: Any, times: int = 1) -> None:
    for _ in range(times):
        server.predict(x=np.array([1.0], np.float32))


def test_requests_are_counted_as_tf_serving_counts_them(monitored: Any) -> None:
    _ask(monitored, 3)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "half"
    request.model_spec.signature_name = "nobody"
    with pytest.raises(grpc.RpcError):
        monitored.prediction.Predict(request, timeout=20)
    examples = classification_pb2.ClassificationRequest()
    examples.model_spec.name = "half"
    examples.model_spec.signature_name = "classify_x_to_y"
    for _ in range(5):
        example = examples.input.example_list.examples.add()
        example.features.feature["x"].float_list.value.append(1.0)
    monitored.prediction.Classify(examples, timeout=20)
    assert monitored.rest_predict({"instances": [1.0, 2.0]})[0] == 200
    assert monitored.rest("/v1/models/half/metadata")[0] == 200
    assert monitored.rest("/v1/models/nope")[0] == 404
    assert monitored.rest("/v1/nonsense")[0] == 400
    samples = samples_of(monitored)
    name = ":tensorflow:serving:request_count"
    assert {key: value for key, value in samples.items() if key.startswith(name)} == {
        # 3 Predict and 1 Classify over gRPC, predict and metadata over REST.
        f'{name}{{model_name="half",status="OK"}}': 6,
        f'{name}{{model_name="half",status="FAILED_PRECONDITION"}}': 1,
        f'{name}{{model_name="nope",status="NOT_FOUND"}}': 1,
        f'{name}{{status="INVALID_ARGUMENT"}}': 1,
    }
    latency = ":tensorflow:serving:request_latency_count"
    assert {key: value for key, value in samples.items() if key.startswith(latency)} == {
        f'{latency}{{model_name="half",API="Predict",entrypoint="GRPC"}}': 3,
        f'{latency}{{model_name="half",API="Classify",entrypoint="GRPC"}}': 1,
        f'{latency}{{model_name="half",API="predict",entrypoint="REST"}}': 1,
        f'{latency}{{model_name="half",entrypoint="REST"}}': 1,
    }
    runtime = ":tensorflow:serving:runtime_latency_count"
    # REST's runs are runs of the same API.
    assert samples[f'{runtime}{{model_name="half",API="Predict",runtime="TF1"}}'] == 4
    assert samples[f'{runtime}{{model_name="half",API="Classify",runtime="TF1"}}'] == 1
    assert samples[':tensorflow:serving:request_example_count_total{model="half"}'] == 5
    counts = ":tensorflow:serving:request_example_counts_bucket"
    assert samples[f'{counts}{{model="half",le="4"}}'] == 0
    assert samples[f'{counts}{{model="half",le="8"}}'] == 1
    assert samples[f'{counts}{{model="half",le="+Inf"}}'] == 1


def test_buckets_are_tf_servings_and_cumulative(monitored: Any) -> None:
    _ask(monitored, 2)
    labels = 'model_name="half",API="Predict",entrypoint="GRPC"'
    name = ":tensorflow:serving:request_latency"
    page = page_of(monitored)
    assert f"# TYPE {name} histogram\n" in page
    assert "# HELP :tensorflow:core" not in page
    found = re.findall(rf'{name}_bucket\{{{labels},le="([^"]+)"\}} (\d+)', page)
    limits = [limit for limit, _ in found]
    assert limits[:6] == ["10", "18", "32.4", "58.32", "104.976", "188.957"]
    assert limits[-1] == "+Inf"
    assert len(limits) == 34
    counts = [int(count) for _, count in found]
    assert counts == sorted(counts)
    assert counts[-1] == 2
    samples = samples_of(monitored)
    assert samples[f"{name}_count{{{labels}}}"] == 2
    assert samples[f"{name}_sum{{{labels}}}"] > 0


def test_versions_and_signatures_are_kept_apart(monitored: Any) -> None:
    _ask(monitored)
    assert monitored.rest_predict({"instances": [1.0]})[0] == 200
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "half"
    request.model_spec.version.value = 9
    with pytest.raises(grpc.RpcError):
        monitored.prediction.Predict(request, timeout=20)
    request.model_spec.version.value = 123
    with pytest.raises(grpc.RpcError):  # its input is missing
        monitored.prediction.Predict(request, timeout=20)
    samples = samples_of(monitored)

    def requests(version: str, signature: str, entrypoint: str, status: str) -> float:
        answered_by = f'version="{version}",signature_name="{signature}",' if version else ""
        return samples[
            f'hotrow_requests_total{{model_name="half",{answered_by}'
            f'API="Predict",entrypoint="{entrypoint}",status="{status}"}}'
        ]

    assert requests("123", "serving_default", "GRPC", "OK") == 1
    assert requests("123", "serving_default", "REST", "OK") == 1
    assert requests("123", "serving_default", "GRPC", "INVALID_ARGUMENT") == 1
    # A version that clients make up is no label.
    assert requests("", "", "GRPC", "NOT_FOUND") == 1
    state = 'hotrow_model_version_state{model_name="half",version="123",state="AVAILABLE"}'
    assert samples[state] == 1
    (build,) = (key for key in samples if key.startswith("hotrow_build_info"))
    assert re.fullmatch(r'hotrow_build_info\{version="[^"]+",tensorflow="2\.21\.\d+"\}', build)


def test_names_that_clients_make_up_do_not_fill_the_memory(monitored: Any) -> None:
    pending = []
    for number in range(5000):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = f"made-up-{number}"
        pending.append(monitored.prediction.Predict.future(request, timeout=60))
        if len(pending) == 200:
            assert all(call.code() is grpc.StatusCode.NOT_FOUND for call in pending)
            pending.clear()
    samples = samples_of(monitored)
    name = ":tensorflow:serving:request_count"
    assert samples[f'{name}{{model_name="other",status="other"}}'] >= 5000 - 4096
    assert len([key for key in samples if key.startswith(name)]) <= 4097


def test_a_long_name_is_no_label(monitored: Any) -> None:
    long = "a" * 50_000
    assert monitored.rest(f"/v1/models/{long}")[0] == 404
    assert samples_of(monitored)[
        ':tensorflow:serving:request_count{model_name="other",status="other"}'
    ]
    assert "aaaa" not in page_of(monitored)


def test_names_in_labels_are_escaped(monitored: Any) -> None:
    assert monitored.rest("/v1/models/a%22b%5Cc%0Ad")[0] == 404
    name = r'request_count{model_name="a\"b\\c\nd",status="NOT_FOUND"} 1'
    assert f":tensorflow:serving:{name}\n" in page_of(monitored)


def test_tensorflow_exposes_what_it_counts_itself(monitored: Any, two: Path) -> None:
    _ask(monitored, 3)
    samples = samples_of(monitored)
    loads = f':tensorflow:cc:saved_model:load_attempt_count{{model_path="{two}",status="success"}}'
    assert samples[loads] == 1
    latency = f':tensorflow:cc:saved_model:load_latency{{model_path="{two}"}}'
    assert samples[latency] > 0
    # TensorFlow runs a graph for each request, and some to load the model.
    assert samples[":tensorflow:core:graph_runs{}"] >= 3
    micros = ":tensorflow:core:graph_run_time_usecs_histogram"
    assert samples[f"{micros}_count{{}}"] == samples[f'{micros}_bucket{{le="+Inf"}}'] >= 3
    assert f"# TYPE {micros} histogram" in page_of(monitored)


def test_counts_go_on_when_the_executable_starts_again(monitored: Any) -> None:
    key = ':tensorflow:serving:request_count{model_name="half",status="OK"}'
    _ask(monitored, 4)
    assert samples_of(monitored)[key] == 4
    os.kill(data_plane_of(monitored), signal.SIGKILL)
    monitored.wait_for_log("hotrow-server serves again")
    assert samples_of(monitored)[key] == 4
    _ask(monitored, 2)
    assert samples_of(monitored)[key] == 6


def test_counts_of_requests_go_on_when_the_control_process_starts_again(monitored: Any) -> None:
    key = ':tensorflow:serving:request_count{model_name="half",status="OK"}'
    _ask(monitored, 4)
    assert monitored.rest_predict({"instances": [1.0]})[0] == 200
    assert samples_of(monitored)[key] == 5
    os.kill(control_of(monitored), signal.SIGKILL)
    monitored.wait_for_log("the control process serves again")
    _ask(monitored, 2)
    assert monitored.rest_predict({"instances": [1.0]})[0] == 200
    assert samples_of(monitored)[key] == 8


@pytest.mark.parametrize("method", ["MetricsPage", "Other"])
def test_clients_call_no_method_of_the_processes_among_themselves(
    monitored: Any, method: str
) -> None:
    call = monitored.channel.unary_unary(f"/hotrow.Control/{method}")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"", timeout=20)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_the_path_is_the_files(base: Path, tmp_path: Path, start_server: Any) -> None:
    (tmp_path / "monitoring").write_text('prometheus_config { enable: true path: "/metrics" }')
    server = start_server("half", base, f"--monitoring_config_file={tmp_path}/monitoring")
    server.wait_ready()
    url = f"http://127.0.0.1:{server.rest_port}/metrics"
    with urllib.request.urlopen(url, timeout=20) as reply:
        assert reply.headers["Content-Type"] == "text/plain"
        assert reply.read().startswith(b"# TYPE ")
    assert server.rest(PATH)[0] == 404
    # Exactly this path.
    assert server.rest("/metrics/")[0] == 404


@pytest.mark.parametrize("text", ["", 'prometheus_config { enable: false path: "/metrics" }'])
def test_metrics_are_off_unless_enabled(tmp_path: Path, half_plus_two: Any, text: str) -> None:
    (tmp_path / "monitoring").write_text(text)
    assert read_metrics_path(str(tmp_path / "monitoring")) is None
    assert half_plus_two.rest(PATH)[0] == 404


def test_a_file_that_is_no_monitoring_config_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "monitoring").write_text("prometheus_config { on: true }")
    log = refused_start("half", base, f"--monitoring_config_file={tmp_path}/monitoring")
    assert log[-1] == f"Invalid protobuf file: '{tmp_path}/monitoring'"


def test_batches_are_measured(base: Path, tmp_path: Path, start_server: Any) -> None:
    (tmp_path / "monitoring").write_text("prometheus_config { enable: true }")
    (tmp_path / "batching").write_text(
        'max_batch_size { value: 4 } allowed_batch_sizes: 4 thread_pool_name { value: "the_pool" }'
    )
    server = start_server(
        "half",
        base,
        f"--monitoring_config_file={tmp_path}/monitoring",
        "--enable_batching",
        f"--batching_parameters_file={tmp_path}/batching",
    )
    server.wait_ready()
    _ask(server, 2)
    samples = samples_of(server)
    name = ":tensorflow:serving:batching_session"
    assert samples[f'{name}:queuing_latency_count{{thread_pool_name="the_pool"}}'] == 2
    assert samples[f"{name}:wrapped_run_count{{}}"] == 2
    assert samples[f'{name}:padding_size_sum{{execution_batch_size="4"}}'] == 6
    assert samples[f"{name}:input_batch_size_sum{{}}"] == 2
    assert samples[f"{name}:processed_batch_size_sum{{}}"] == 8


def test_warm_up_is_measured(tmp_path: Path, start_server: Any) -> None:
    (tmp_path / "monitoring").write_text("prometheus_config { enable: true }")
    for version, signature in ((1, ""), (2, "nobody")):
        path = save_visits(tmp_path / "visits" / str(version))
        log = prediction_log_pb2.PredictionLog()
        log.predict_log.request.model_spec.signature_name = signature
        log.predict_log.request.inputs["x"].CopyFrom(tf.make_tensor_proto([1.0], tf.float32))
        (path / "assets.extra").mkdir(exist_ok=True)
        with tf.io.TFRecordWriter(
            str(path / "assets.extra" / "tf_serving_warmup_requests")
        ) as writer:
            for _ in range(4):
                writer.write(log.SerializeToString())
    (tmp_path / "models.txt").write_text(
        f'model_config_list {{ config {{ name: "visits" base_path: "{tmp_path}/visits" '
        'model_platform: "tensorflow" model_version_policy { specific { versions: 1 } } } }'
    )
    server = start_server(
        "visits",
        "",
        f"--model_config_file={tmp_path}/models.txt",
        f"--monitoring_config_file={tmp_path}/monitoring",
        "--max_num_load_retries=0",
    )
    server.wait_ready()
    reload(
        server,
        model("visits", tmp_path / "visits", "model_version_policy { all {} }"),
    )
    server.wait_for_log("version 2 failed to load")
    samples = samples_of(server)
    name = ":tensorflow:serving:model_warmup"
    good, bad = tmp_path / "visits" / "1", tmp_path / "visits" / "2"
    assert samples[f'{name}_records_read{{model_path="{good}"}}'] == 4
    assert samples[f'{name}_latency_count{{model_path="{good}",status="OK"}}'] == 1
    assert samples[f'{name}_latency_sum{{model_path="{good}",status="OK"}}'] > 0
    # The first one failed.
    assert samples[f'{name}_records_read{{model_path="{bad}"}}'] == 1
    assert samples[f'{name}_latency_count{{model_path="{bad}",status="FAILED_PRECONDITION"}}'] == 1


def test_every_metric_but_tensorflows_own_is_documented(monitored: Any) -> None:
    types = re.findall(r"^# TYPE ([\w:]+) (\w+)$", page_of(monitored), re.MULTILINE)
    ours = {name: kind for name, kind in types if re.match("hotrow_|:tensorflow:serving:", name)}
    assert len(ours) > 10
    page = (Path(__file__).parents[3] / "docs" / "serving.md").read_text()
    for name, kind in ours.items():
        assert f"| `{name}` | {kind} | " in page or name.startswith("hotrow_store_")
