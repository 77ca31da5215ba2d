"""Real servers for the tests: processes of `platform serve` on free ports."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
import tensorflow as tf
from children import start_child
from emulated_package import lay_out_emulated
from free_ports import free_port
from integration.serving.trained_run import export, train
from tensorflow_serving.apis import (
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

READY_SECONDS = 120.0
STOP_SECONDS = 60.0
STORE_PATIENCE = "--store_timeout_ms=5000"  # for machines with other load


# Time, level and file of a line.
PREFIX = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: [IWEF] \S+\] "


class Server:
    """A `platform serve` process and clients for it; it ends with this process.

    Args:
        model: its name.
        base_path: its folder.
        flags: more of them; they win over those of the tests.
        variables: of the environment, beside those of this process.
        first: stands before its command.

    Attributes:
        lines: of standard error.
        log: the same without time, level and file.
    """

    def __init__(
        self,
        model: str,
        base_path: Path,
        *flags: str,
        variables: dict[str, str] | None = None,
        first: Sequence[str] = (),
    ) -> None:
        self.model = model
        self.port, self.rest_port = free_port(), free_port()
        self.process = start_child(
            [
                *(*first, sys.executable, "-m", "hotrow.cli.main", "serve"),
                *(f"--model_name={model}", f"--model_base_path={base_path}"),
                *(f"--port={self.port}", f"--rest_api_port={self.rest_port}"),
                "--file_system_poll_wait_seconds=0.1",
                STORE_PATIENCE,
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONFAULTHANDLER": "1", **(variables or {})},
        )
        self.lines: list[str] = []
        self.log: list[str] = []
        self._new_line = threading.Condition()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def wait_ready(self) -> str:
        """Returns the line that says that the server is ready."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server ended: " + "\n".join(self.log)
        return line.strip()

    def wait_for_log(self, part: str) -> None:
        """Waits until a line of standard error contains `part`."""
        with self._new_line:
            found = self._new_line.wait_for(
                lambda: any(part in line for line in self.log), READY_SECONDS
            )
        assert found, f"no {part!r} in " + "\n".join(self.log)

    def predict(self, timeout: float | None = 30.0, **inputs: Any) -> predict_pb2.PredictResponse:
        """Returns the answer of `serving_default` to numpy arrays."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.model
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        return self.prediction.Predict(request, timeout=timeout)

    def rest(self, path: str, body: bytes | None = None, **options: Any) -> tuple[int, str]:
        """Returns HTTP status and body of a GET, or of a POST when there is a body."""
        url = f"http://127.0.0.1:{self.rest_port}{path}"
        request = urllib.request.Request(url, data=body, **options)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as err:
            with err:
                return err.code, err.read().decode()

    def rest_predict(self, body: Any, verb: str = "predict") -> tuple[int, str]:
        """Posts JSON to the model."""
        return self.rest(f"/v1/models/{self.model}:{verb}", json.dumps(body).encode())

    def terminate(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and returns the exit code."""
        self.process.send_signal(number)
        return self.wait_exit()

    def wait_exit(self) -> int:
        """Returns the exit code of a process that ends by itself."""
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._print_stacks()
            raise AssertionError("the server does not end: " + "\n".join(self.log)) from None
        self._reader.join()
        return code

    def _print_stacks(self) -> None:
        """Aborts the control process and its supervisor, which print what their threads do."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in [*map(int, children.read_text().split()), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)
            time.sleep(1.0)

    def close(self) -> None:
        """Ends the process in any state."""
        self.channel.close()
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._new_line:
                self.lines.append(line.rstrip())
                self.log.append(re.sub(PREFIX, "", line.rstrip()))
                self._new_line.notify_all()


StartServer = Callable[..., Server]


def _servers() -> Iterator[StartServer]:
    servers: list[Server] = []

    def start(model: str, base_path: Path, *flags: str, **options: Any) -> Server:
        servers.append(Server(model, base_path, *flags, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Starts servers, `start_server(model, base_path, *flags)`; they end with the test.

    Options by name are those of `Server`.
    """
    yield from _servers()


@pytest.fixture(scope="session")
def on_emulated_gpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables with which a server finds GPUs, those of the emulator."""
    folder = lay_out_emulated(tmp_path_factory.mktemp("emulated"))
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def start_shared_server() -> Iterator[StartServer]:
    """The same for servers that end with the module."""
    yield from _servers()


@pytest.fixture(scope="module")
def testdata(shared: Path) -> Path:
    """TensorFlow Serving's own SavedModels."""
    return shared / "data" / "tfserving_testdata"


@pytest.fixture(scope="module")
def base(testdata: Path) -> Path:
    """A base path of half_plus_two, a TensorFlow 1 SavedModel, with version 123."""
    return testdata / "saved_model_half_plus_two_cpu"


@pytest.fixture(scope="module")
def two(testdata: Path) -> Path:
    """Its version directory: 2.0 becomes 3.0."""
    return testdata / "saved_model_half_plus_two_cpu" / "00000123"


@pytest.fixture(scope="module")
def three(testdata: Path) -> Path:
    """A version directory of half_plus_three: 2.0 becomes 4.0."""
    return testdata / "saved_model_half_plus_three" / "00000123"


@pytest.fixture(scope="session")
def trained(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run, exported with rows of its own as `own`; for reading."""
    folder = tmp_path_factory.mktemp("trained")
    train(shared, folder)
    export(folder, folder / "models", "own")
    return folder


def served(model: str, base: Path) -> Iterator[Server]:
    """Yields a server of a model, and ends it afterwards."""
    server = Server(model, base)
    try:
        server.wait_ready()
        yield server
    finally:
        server.close()


def _copied_server(source: Path, base: Path, model: str) -> Iterator[Server]:
    shutil.copytree(source, base)
    yield from served(model, base)


@pytest.fixture(scope="module")
def half_plus_two(testdata: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of half_plus_two, a TensorFlow 1 SavedModel, at version 123."""
    base = tmp_path_factory.mktemp("half") / "model"
    yield from _copied_server(testdata / "saved_model_half_plus_two_cpu", base, "half")


@pytest.fixture(scope="module")
def half_plus_two_tf2(testdata: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of half_plus_two as a TensorFlow 2 SavedModel whose input has a default."""
    base = tmp_path_factory.mktemp("half2") / "model"
    yield from _copied_server(testdata / "saved_model_half_plus_two_tf2_cpu", base, "half2")


class Zoo:
    """Functions that become signatures, one for each kind of request the tests need."""

    def serving_default(self, x: Any) -> Any:
        return {"y": tf.identity(x)}

    def spin(self, turns: Any) -> Any:
        """Keeps a CPU busy for `turns` turns of a loop, some microseconds each."""
        return {"turned": tf.while_loop(lambda i: i < turns, lambda i: [i + 1], [turns * 0])[0]}

    def never(self, number: Any) -> Any:
        """Scores that never come."""
        turned = self.spin(tf.size(number, tf.int64) + 2**60)["turned"]
        return {"scores": number + tf.cast(turned, tf.float32)}

    def echo(self, text: Any) -> Any:
        return {"text": text, "text_bytes": text}

    def add(self, a: Any, b: Any) -> Any:
        return {"sum": a + tf.cast(b, tf.float32), "b": b}

    def kinds(self, yes: Any) -> Any:
        third = tf.fill(tf.shape(yes), tf.constant(1 / 3, tf.float64))
        return {"no": tf.logical_not(yes), "third": third}

    def columns(self, number: Any, count: Any, word: Any) -> Any:
        """A probability: a missing number counts as 0, a word by its length."""
        known = tf.where(tf.math.is_nan(number), 0.0, number)
        length = tf.cast(tf.strings.length(word), tf.float32)
        total = known + tf.cast(count, tf.float32) + length
        return {"scores": total / 8.0, "total": total}

    def bag(self, ids: Any, ids_row_splits: Any, ids_weights: Any) -> Any:
        weighted = tf.cast(ids, tf.float32) * ids_weights
        rows = tf.RaggedTensor.from_row_splits(weighted, ids_row_splits)
        return {"scores": tf.reduce_sum(rows, 1)}

    def half_precision(self, x: Any) -> Any:
        return {"y": tf.cast(x, tf.float16)}

    def uneven(self, x: Any) -> Any:
        return {"y": x, "z": tf.concat([x, x], 0)}

    def total(self, x: Any) -> Any:
        return {"y": tf.reduce_sum(x)}

    def complain(self, x: Any) -> Any:
        refusal = tf.debugging.Assert(False, ["x" * 3000], summarize=1)
        with tf.control_dependencies([refusal]):
            return {"y": tf.identity(x)}


_TYPES = {
    **dict.fromkeys(("x", "a", "number", "ids_weights"), tf.float32),
    **dict.fromkeys(("b", "count", "ids", "ids_row_splits", "turns"), tf.int64),
    **dict.fromkeys(("text", "word"), tf.string),
    "yes": tf.bool,
}
_SHAPES: dict[str, Any] = {"turns": [], "x": None}


def save_zoo(base: Path) -> Path:
    """Writes a SavedModel with the functions of `Zoo` as signatures; returns its base path."""
    signatures = {}
    for name, method in inspect.getmembers(Zoo(), inspect.ismethod):
        specs = [
            tf.TensorSpec(_SHAPES.get(argument, [None]), _TYPES[argument], argument)
            for argument in inspect.signature(method).parameters
        ]
        signatures[name] = tf.function(method, input_signature=specs)
    module = tf.Module()
    module.functions = signatures
    tf.saved_model.save(module, str(base / "1"), signatures=signatures)
    return base


@pytest.fixture(scope="session")
def zoo_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of the zoo."""
    return save_zoo(tmp_path_factory.mktemp("zoo") / "zoo")


@pytest.fixture(scope="module")
def zoo(zoo_dir: Path) -> Iterator[Server]:
    """A server of the zoo."""
    yield from served("zoo", zoo_dir)
