"""The time that a request has to read rows: one budget for all of its lookups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import keras
import numpy as np
import pytest
import tensorflow as tf
from integration.serving.cut_servers import metrics
from integration.serving.metrics_page import samples_of
from slow_proxy import SlowProxy
from tensorflow_serving.apis import predict_pb2
from waiting import wait_until

import hotrow

LOOKUPS = 4
KEYS = np.arange(3, dtype=np.int64)


@pytest.fixture(scope="module")
def proxy(module_redis_servers: Any) -> Iterator[SlowProxy]:
    """A Redis that can be slow."""
    redis = module_redis_servers.standalone()
    with contextlib.closing(SlowProxy(redis.port)) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def base(proxy: SlowProxy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model `m`: each of its lookups needs the rows of the one before."""
    keys = key = keras.Input((), dtype="int64", name="key")
    rows = []
    for number in range(LOOKUPS):
        table = hotrow.TableConfig(f"t{number}", 4)
        layer = hotrow.DistributedEmbedding([hotrow.FeatureConfig(f"k{number}", table)])
        rows.append(layer({f"k{number}": key})[f"k{number}"])
        key = keys + keras.ops.cast(keras.ops.clip(rows[-1][:, 0], 0, 0), "int64")
    model = keras.Model({"key": keys}, keras.layers.Dense(1)(keras.ops.concatenate(rows, 1)))
    model.compile("sgd", "mse")
    model.fit({"key": KEYS}, np.ones(3), verbose=0)
    folder = tmp_path_factory.mktemp("models")
    hotrow.export_model(model, folder, "m", store=f"redis://127.0.0.1:{proxy.port}")
    return folder


@pytest.fixture
def at_full_speed(proxy: SlowProxy) -> Iterator[None]:
    """The store is fast again afterwards."""
    yield
    proxy.delay = 0.0


def default_rows(server: Any) -> int:
    """Returns how many lookups of a request got a default row."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "m"
    request.inputs["key"].CopyFrom(tf.make_tensor_proto(KEYS))
    _, call = server.prediction.Predict.with_call(request, timeout=30)
    return int(dict(call.trailing_metadata() or ()).get("x-hotrow-default-rows", 0))


def failed_rows(server: Any) -> float:
    return sum(v for n, v in samples_of(server).items() if n.startswith("hotrow_failed_rows_total"))


@pytest.mark.parametrize("batched", [False, True], ids=["alone", "in a batch"])
@pytest.mark.usefixtures("at_full_speed")
def test_lookups_of_a_request_share_one_budget(
    batched: bool, base: Path, proxy: SlowProxy, start_server: Any
) -> None:
    flags = ["--enable_batching"] if batched else []
    server = start_server(
        "m", base / "m", "--store_timeout_ms=500", "--on_store_failure=default", *flags
    )
    server.wait_ready()
    for _ in range(3):
        assert default_rows(server) == 0
    # Each lookup alone would end in time.
    proxy.delay = 0.3
    for _ in range(3):
        assert (LOOKUPS - 1) * len(KEYS) <= default_rows(server) <= LOOKUPS * len(KEYS)
    proxy.delay = 0.0
    wait_until(lambda: default_rows(server) == 0)


@pytest.fixture(scope="module")
def patient(base: Path, start_shared_server: Any) -> Any:
    """A server that waits for its store, with a page of metrics."""
    server = start_shared_server("m", base / "m", "--store_timeout_ms=20000", metrics(base))
    server.wait_ready()
    return server


@pytest.mark.usefixtures("at_full_speed")
def test_the_times_of_reads_are_a_histogram(patient: Any, proxy: SlowProxy) -> None:
    def reads(below: str) -> float:
        labels = f'model_name="m",version="1",le="{below}"'
        return samples_of(patient)[f"hotrow_store_read_seconds_bucket{{{labels}}}"]

    before = reads("0.065536"), reads("+Inf")
    patient.predict(key=KEYS)
    assert reads("+Inf") == before[1] + LOOKUPS
    proxy.delay = 0.1
    fast = reads("0.065536")
    patient.predict(key=KEYS)
    assert reads("0.065536") == fast
    assert reads("+Inf") == before[1] + 2 * LOOKUPS
    samples = samples_of(patient)
    labels = 'model_name="m",version="1"'
    assert samples[f"hotrow_store_read_seconds_count{{{labels}}}"] == reads("+Inf")
    assert samples[f"hotrow_store_read_seconds_sum{{{labels}}}"] > 0.1 * LOOKUPS


@pytest.mark.usefixtures("at_full_speed")
def test_the_deadline_of_a_request_ends_its_reads(patient: Any, proxy: SlowProxy) -> None:
    server = patient
    for _ in range(5):
        server.predict(key=KEYS)
    for _ in range(3):  # in the thread of the request, and then in TensorFlow's
        # Later the rows would arrive, and none would have failed.
        proxy.delay = 0.6
        before = failed_rows(server)
        with pytest.raises(grpc.RpcError) as error:
            server.predict(timeout=0.2, key=KEYS)
        assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until(lambda before=before: failed_rows(server) > before, seconds=5)  # type: ignore[misc]
        proxy.delay = 0.0
        wait_until(lambda: is_answered(server))


def is_answered(server: Any) -> bool:
    try:
        server.predict(key=KEYS)
    except grpc.RpcError:
        return False
    return True


@pytest.mark.usefixtures("at_full_speed")
def test_a_read_that_outlasts_its_request_is_no_fault_of_the_store(
    base: Path, proxy: SlowProxy, start_server: Any
) -> None:
    server = start_server(
        "m", base / "m", "--store_timeout_ms=20000", "--rest_api_timeout_in_ms=300"
    )
    server.wait_ready()
    proxy.delay = 0.6
    for _ in range(2):
        status, body = server.rest("/v1/models/m:predict", b'{"instances": [0, 1, 2]}')
        assert status == 504, body
