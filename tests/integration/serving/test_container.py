"""The programs of the serving image, run outside of a container."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import tensorflow as tf
import yaml
from free_ports import free_port
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

DOCKER = Path(__file__).resolve().parents[3] / "docker"
PROGRAMS = DOCKER / "serving"
STOP_SECONDS = 60.0


class Container:
    """The image's entrypoint with its environment, on free ports."""

    def __init__(self, models: Path, ports: tuple[int, int], *arguments: str) -> None:
        self.grpc_port, self.rest_port = ports
        self.environment = {
            **os.environ,
            # As in the image: our programs and those of the environment.
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MODEL_NAME": "model",
            "MODEL_BASE_PATH": str(models),
            "GRPC_PORT": str(self.grpc_port),
            "PORT": str(self.rest_port),
        }
        self.process = subprocess.Popen(
            [PROGRAMS / "serving-entrypoint", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("Serving ")

    def health(self) -> tuple[int, str]:
        """Returns exit code and output of the image's health check."""
        done = subprocess.run(
            [PROGRAMS / "server-is-ready"],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def rest(self, path: str, body: Any = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.rest_port}{path}"
        with urllib.request.urlopen(url, data, timeout=60) as reply:
            text: str = reply.read().decode()
            return text

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def models(testdata: Path, tmp_path: Path) -> Path:
    """A folder as one mounts at /models; `model` is not there yet."""
    shutil.copytree(testdata / "saved_model_half_plus_two_cpu", tmp_path / "models" / "half")
    return tmp_path / "models"


@pytest.fixture
def start_container(models: Path) -> Iterator[Any]:
    started: list[Container] = []

    def start(*arguments: str) -> Container:
        started.append(Container(models, (free_port(), free_port()), *arguments))
        return started[-1]

    yield start
    for container in started:
        container.close()


def test_the_entrypoint_serves_the_mounted_model(start_container: Any, models: Path) -> None:
    monitoring = f"--monitoring_config_file={DOCKER / 'monitoring.config'}"
    # Arguments win over the image's own.
    container = start_container(monitoring, "--model_name=shop")
    # Without a version the server waits for one.
    code, text = container.health()
    assert code == 1
    assert text.startswith("no answer: ")
    shutil.move(models / "half", models / "model")
    container.wait_ready()
    assert container.health() == (0, '{"ready": true}\n')
    reply = container.rest("/v1/models/shop:predict", {"instances": [1.0, 2.0, 5.0]})
    assert json.loads(reply) == {"predictions": [2.5, 3.0, 4.5]}
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "shop"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([1.0], tf.float32))
    with grpc.insecure_channel(f"127.0.0.1:{container.grpc_port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        assert tf.make_ndarray(stub.Predict(request, timeout=30).outputs["y"]) == [2.5]
    scraped = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())["scrape_configs"][0]
    assert ":tensorflow:serving:request_count" in container.rest(scraped["metrics_path"])
    # No shell is left between the container's first process and the server.
    command = Path(f"/proc/{container.process.pid}/cmdline").read_bytes().split(b"\0")
    assert b"sh" not in Path(os.fsdecode(command[0])).name.encode()
    container.process.terminate()
    assert container.process.wait(STOP_SECONDS) == 0


def test_entrypoints_for_tensorflow_model_server_find_it() -> None:
    done = subprocess.run(
        [PROGRAMS / "tensorflow_model_server", "--help"],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--model_config_file" in done.stdout
