"""Versions whose rows are in Redis: exact, within a time budget, never invented."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from integration.serving.cut_servers import metrics
from integration.serving.metrics_page import samples_of
from integration.serving.server_processes import control_of
from integration.serving.trained_run import export, inputs, predict, scores_of
from redis_servers.tls import flags_with
from tensorflow_serving.apis import inference_pb2, predict_pb2
from waiting import wait_until

from hotrow.cli.main import main
from hotrow.manifest import read_manifest
from hotrow.store import open_store
from hotrow.store.generations import Generations
from hotrow.store.readers import users


@pytest.fixture(scope="module")
def expected(trained: Path, start_shared_server: Any, tmp_path_factory: Any) -> list[float]:
    """The scores with the rows in LMDB."""
    server = start_shared_server("own", trained / "models" / "own")
    server.wait_ready()
    return scores_of(server, trained, tmp_path_factory.mktemp("scores"))


def reported_default_rows(server: Any, folder: Path, copies: int) -> str | None:
    """Returns the number of default rows that the answer to copies of that row reports."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = server.model
    for name, value in inputs(folder).items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(np.repeat(value, copies)))
    reply, call = server.prediction.Predict.with_call(request, timeout=30)
    assert list(reply.outputs) == ["scores"]
    assert len(reply.outputs["scores"].float_val) == copies
    reported = dict(call.trailing_metadata())
    return reported.get("x-hotrow-default-rows")


def default_rows_of_tasks(server: Any, folder: Path, *signatures: str) -> str | None:
    """Returns the number of default rows that the answer to several tasks on that row reports."""
    request = inference_pb2.MultiInferenceRequest()
    for signature in signatures:
        task = request.tasks.add(method_name=f"tensorflow/serving/{signature}")
        task.model_spec.name = server.model
        task.model_spec.signature_name = signature
    features = request.input.example_list.examples.add().features.feature
    for name, value in inputs(folder).items():
        if value.dtype == object:
            features[name].bytes_list.value.append(value[0])
        else:
            features[name].float_list.value.append(value[0])
    _, call = server.prediction.MultiInference.with_call(request, timeout=30)
    reported = dict(call.trailing_metadata())
    return reported.get("x-hotrow-default-rows")


def rest_headers(server: Any, folder: Path) -> dict[str, str]:
    """Returns our own headers of REST's answer to that row."""
    row = {
        name: value[0].decode() if value.dtype == object else float(value[0])
        for name, value in inputs(folder).items()
    }
    url = f"http://127.0.0.1:{server.rest_port}/v1/models/{server.model}:predict"
    body = json.dumps({"instances": [row]}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=30) as reply:
        return {n.lower(): v for n, v in reply.headers.items() if n.lower().startswith("x-hotrow")}


def failure(server: Any, trained: Path) -> tuple[grpc.StatusCode, str, float]:
    """Returns code and text of a request that fails, and how many seconds it took."""
    started = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        predict(server, trained)
    return caught.value.code(), caught.value.details() or "", time.monotonic() - started


def evaluate(server: Any, folder: Path, *arguments: str) -> int:
    """Returns the exit code of `platform evaluate` on the first 20 rows."""
    to = ["--server", f"127.0.0.1:{server.port}", "--model", server.model]
    return main(["evaluate", *to, "--data", str(folder / "valid.tsv"), "--limit", "20", *arguments])


def wait_until_answered(server: Any, trained: Path, score: float) -> None:
    """Waits until requests do not fail any more, and compares the score."""
    end = time.monotonic() + 20
    while True:
        try:
            assert predict(server, trained) == score
            return
        except grpc.RpcError:
            assert time.monotonic() < end
            time.sleep(0.05)


# A cluster behind TLS with a password has everything that the others have, except the Unix socket.
KINDS = [
    "unix",
    "tls cluster",
    *(
        pytest.param(k, marks=pytest.mark.slow)
        for k in ("standalone", "cluster", "password", "tls")
    ),
]


@pytest.mark.parametrize("kind", KINDS)
def test_scores_from_redis_are_those_of_training(
    kind: str,
    trained: Path,
    expected: list[float],
    redis_servers: Any,
    start_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    password = "s3cret@:/" if kind in ("password", "tls cluster") else ""
    monkeypatch.setenv("HOTROW_STORE_PASSWORD", password)
    tls = kind.startswith("tls")
    if kind.endswith("cluster"):
        redis = redis_servers.cluster(replicas=False, password=password, tls=tls)
    elif kind == "unix":
        redis = redis_servers.standalone(unix_socket=True)
    else:
        redis = redis_servers.standalone(password=password, tls=tls, tls_clients=tls)
    flags = flags_with(redis.certificates) if tls else []
    export(trained, tmp_path / "models", "redis", f"--store={redis.url}", *flags)
    assert not (tmp_path / "models" / "redis" / "1" / "rows").exists()
    server = start_server("redis", tmp_path / "models" / "redis", *flags)
    server.wait_ready()
    assert scores_of(server, trained, tmp_path) == expected
    flags.append("--cache_rows=100")
    cached = start_server("redis", tmp_path / "models" / "redis", *flags)
    cached.wait_ready()
    assert scores_of(cached, trained, tmp_path) == expected
    assert scores_of(cached, trained, tmp_path) == expected


def test_a_node_behind_tls_that_dies_fails_requests_in_time_until_it_is_back(
    trained: Path, redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    kept = {"appendonly": "yes"}
    redis = redis_servers.standalone(tls=True, tls_clients=True, settings=kept)
    flags = flags_with(redis.certificates)
    export(trained, tmp_path / "models", "m", f"--store={redis.url}", *flags)
    server = start_server("m", tmp_path / "models" / "m", "--store_timeout_ms=500", *flags)
    server.wait_ready()
    before = predict(server, trained)
    redis.stop()
    for _ in range(5):
        code, text, seconds = failure(server, trained)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert f"Redis node {redis.address}: " in text
        assert seconds < 1.0
    redis.restart()
    wait_until_answered(server, trained, before)
    redis.freeze()
    code, text, seconds = failure(server, trained)
    assert code is grpc.StatusCode.UNAVAILABLE
    assert seconds < 1.5
    redis.thaw()
    wait_until_answered(server, trained, before)
    # Rows are read while there is no control process.
    os.kill(control_of(server), signal.SIGKILL)
    for _ in range(5):
        assert predict(server, trained) == before
    assert "the control process serves again" not in "".join(server.log)
    server.wait_for_log("the control process serves again")
    assert predict(server, trained) == before


def test_a_wrong_authority_ends_the_load_with_one_line(
    trained: Path, redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    redis = redis_servers.standalone(tls=True)
    other = redis_servers.standalone(tls=True).certificates.folder
    flags = flags_with(redis.certificates)
    export(trained, tmp_path / "models", "m", f"--store={redis.url}", *flags)
    wrong = (f"--store_ca={other}/ca.cert", "--max_num_load_retries=0")
    server = start_server("m", tmp_path / "models" / "m", *wrong)
    assert server.wait_exit() == 255
    assert "certificate verify failed" in server.log[-1]
    assert "give its authority, --store_ca FILE" in server.log[-1]


def test_rows_in_the_cache_are_served_without_redis(
    trained: Path, expected: list[float], redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    redis = redis_servers.standalone()
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    flags = ("--cache_rows=100000", metrics(tmp_path))
    server = start_server("m", tmp_path / "models" / "m", *flags)
    server.wait_ready()
    for _ in range(2):
        assert scores_of(server, trained, tmp_path) == expected
    known = predict(server, trained)
    redis.freeze()
    assert predict(server, trained) == known
    samples = samples_of(server)
    hits = sum(v for name, v in samples.items() if name.startswith("hotrow_cache_hits_total"))
    assert hits > 600  # many validation keys were never trained
    redis.thaw()
    assert scores_of(server, trained, tmp_path) == expected


def test_without_redis_a_request_fails_within_its_time_budget(
    trained: Path, redis_servers: Any, start_server: Any, tmp_path: Path, capsys: Any
) -> None:
    redis = redis_servers.standalone()
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    server = start_server("m", tmp_path / "models" / "m", "--store_timeout_ms=200")
    server.wait_ready()
    before = predict(server, trained)
    redis.freeze()
    code, text, seconds = failure(server, trained)
    assert code is grpc.StatusCode.UNAVAILABLE
    assert redis.address in text
    assert 0.15 < seconds < 2.0
    assert evaluate(server, trained) == 1
    said = capsys.readouterr().err
    assert f"Error: 127.0.0.1:{server.port} answers, but cannot score model 'm' now: " in said
    assert redis.address in said
    # The breaker opens: requests no longer wait.
    end = time.monotonic() + 10
    while failure(server, trained)[2] > 0.1:
        assert time.monotonic() < end
    redis.thaw()
    wait_until_answered(server, trained, before)


def test_without_redis_default_rows_answer_when_they_may(
    trained: Path, redis_servers: Any, start_server: Any, tmp_path: Path, capsys: Any
) -> None:
    redis = redis_servers.standalone()
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    flags = ("--on_store_failure=default", metrics(tmp_path))
    server = start_server("m", tmp_path / "models" / "m", *flags)
    server.wait_ready()
    before = predict(server, trained)
    assert reported_default_rows(server, trained, 2) is None
    assert rest_headers(server, trained) == {}
    redis.kill()
    assert predict(server, trained) != before
    assert reported_default_rows(server, trained, 1) == "3"
    assert reported_default_rows(server, trained, 4) == "12"
    assert rest_headers(server, trained) == {"x-hotrow-default-rows": "3"}
    assert default_rows_of_tasks(server, trained, "classify") == "3"
    assert default_rows_of_tasks(server, trained, "classify", "regress") == "6"
    report = tmp_path / "report.json"
    assert evaluate(server, trained, "--json", str(report)) == 0
    lookups = json.loads(report.read_text())["default_rows"]
    assert 20 <= lookups <= 60  # of 20 rows with three keys each; some have none
    assert f"warning: {lookups:,} lookups got a default row: the server could" in (
        capsys.readouterr().err
    )
    samples = samples_of(server)
    reported = {n: v for n, v in samples.items() if n.startswith("hotrow_default_rows_total")}
    assert sum(reported.values()) >= 3
    assert all('model_name="m",version="1",table=' in name for name in reported)


def test_default_rows_are_reported_for_each_request_of_a_batch(
    trained: Path, redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    redis = redis_servers.standalone()
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    (tmp_path / "batching").write_text(
        "max_batch_size { value: 32 } batch_timeout_micros { value: 50000 }"
    )
    flags = ["--enable_batching", f"--batching_parameters_file={tmp_path}/batching"]
    server = start_server("m", tmp_path / "models" / "m", "--on_store_failure=default", *flags)
    server.wait_ready()
    redis.kill()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        reported = list(pool.map(lambda n: reported_default_rows(server, trained, n), [1, 2, 3, 4]))
    assert reported == ["3", "6", "9", "12"]


def test_a_store_that_lost_its_rows_is_never_taken_for_one_without_them(
    trained: Path, redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    redis = redis_servers.standalone()
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    server = start_server("m", tmp_path / "models" / "m")
    server.wait_ready()
    predict(server, trained)
    redis.call("FLUSHALL")
    code, text, _ = failure(server, trained)
    assert code in (grpc.StatusCode.DATA_LOSS, grpc.StatusCode.UNAVAILABLE)
    assert "lost" in text
    late = start_server("m", tmp_path / "models" / "m", "--max_num_load_retries=0")
    assert late.wait_exit() == 255
    assert "has no generation" in late.log[-1]


def test_a_generation_lives_as_long_as_a_server_uses_it(
    trained: Path, redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    redis = redis_servers.standalone()
    base = tmp_path / "models"
    export(trained, base, "m", f"--store={redis.url}")
    generation = read_manifest(base / "m" / "1" / "assets" / "hotrow_manifest.json").generation
    server = start_server("m", base / "m", "--file_system_poll_wait_seconds=0")
    server.wait_ready()
    before = predict(server, trained)
    for _ in range(3):
        export(trained, base, "m", f"--store={redis.url}")
    store = open_store(redis.url)
    try:
        assert len(users(store.records, generation)) == 1
        assert len(Generations(store.records).all("m")) == 3
        assert predict(server, trained) == before
        assert server.terminate() == 0
        assert users(store.records, generation) == []
        export(trained, base, "m", f"--store={redis.url}")
        names = [g.generation for g in Generations(store.records).all("m")]
        assert len(names) == 2
        assert generation not in names
    finally:
        store.close()


def test_a_control_process_that_starts_again_without_redis_changes_nothing(
    trained: Path, redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    redis = redis_servers.standalone()
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    server = start_server("m", tmp_path / "models" / "m", "--cache_rows=10000")
    server.wait_ready()
    before = predict(server, trained)
    redis.kill()
    os.kill(control_of(server), signal.SIGKILL)
    server.wait_for_log("the control process serves again")
    assert predict(server, trained) == before
    assert any("rows go on as before" in line for line in server.log)


def test_a_version_loads_as_soon_as_its_store_answers(
    trained: Path, redis_servers: Any, start_server: Any, tmp_path: Path
) -> None:
    redis = redis_servers.standalone(settings={"save": "3600 1"})
    export(trained, tmp_path / "models", "m", f"--store={redis.url}")
    redis.stop()  # saves
    flags = (
        "--cache_rows=10000",
        "--max_num_load_retries=1",
        "--load_retry_interval_micros=100000",
    )
    server = start_server("m", tmp_path / "models" / "m", *flags)
    line = "m: version 1 failed to load (attempt not counted, next in 0.1 s): "
    wait_until(lambda: sum(line in said for said in server.log) >= 4)
    redis.restart()
    server.wait_ready()
    predict(server, trained)


def test_a_store_is_inspected(
    trained: Path, redis_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(trained, tmp_path / "models", "m", f"--store={redis_server.url}", "--row_type=int8")
    capsys.readouterr()
    assert main(["inspect", redis_server.url]) == 0
    printed = capsys.readouterr().out
    assert " of model m, version 1\n  complete, live, used by 0 servers\n" in printed
    assert f"  node {redis_server.address}: 256 shards, " in printed
    assert max(map(len, printed.splitlines())) <= 100
    report = tmp_path / "store.json"
    assert main(["inspect", redis_server.url, "--json", str(report)]) == 0
    document = json.loads(report.read_text())
    assert document.keys() == {"kind", "place", "generations", "unreadable", "tables"}
    (of,) = document["generations"]
    assert {key: of[key] for key in ("model", "version", "state", "live", "rows", "users")} == {
        "model": "m", "version": 1, "state": "complete", "live": True, "rows": 1624, "users": 0,
    }  # fmt: skip
    assert of["cuts"] == []
    assert all(20 < value < 200 for value in of["bytes_a_row"].values())
    (node,) = of["nodes"]
    assert node.keys() == {"address", "used_bytes", "limit_bytes", "shards"}
    assert (node["address"], node["shards"]) == (redis_server.address, 256)
