"""`System`: a trainer that learns online, its Redis, and a server of three models, as processes.

`online` follows the trainer's cuts; `hourly` is exported from its checkpoints by `update_hourly`;
`frozen` stays what it was before the first event.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
from fresh_system import Status, Watch
from redis_process import port_of, redis_server
from tensorflow_serving.apis import prediction_service_pb2_grpc

from hotrow.cli.demo.steps import free_ports, wait_until_ready
from hotrow.cli.main import main as platform_main
from hotrow.manifest import read_manifest
from hotrow.version_layout import FILE_NAME
from pays.events import LABEL, TIME, Events
from pays.plan import Case

ONLINE, HOURLY, FROZEN = MODELS = ("online", "hourly", "frozen")
PLATFORM = (sys.executable, "-m", "hotrow.cli.main")
READY_SECONDS = 180.0
_STEP_SECONDS = 0.02
CONFIG = """\
name: online
seed: {seed}
data: {{format: csv, train: history.csv, batch_size: 256, label: {label}}}
features:
  sparse: {{columns: [{columns}], dim: 16, hash: false}}
tables: {{default: {tables}}}
model: {{arch: dlrm, top: [32]}}
optimizer: {{name: adam, learning_rate: 0.001}}
train: {{shuffle: false}}
checkpoint: {{every_steps: 1000000, every_seconds: 2, keep: 2}}
online:
  source: "file:events.jsonl"
  time: {time}
  models: models
  store: "redis://127.0.0.1:{port}"
  publish_seconds: {publish_seconds}
  frozen: false
  admin: "127.0.0.1:0"
"""
_SERVED = 'config {{ name: "{name}" base_path: "{base}" model_platform: "tensorflow" }}'
_MONITORING = 'prometheus_config { enable: true path: "/metrics" }\n'


class System:
    """What runs, in a folder.

    Attributes:
        stub: of the server's PredictionService.
        metrics: URL of the server's page.
        status: the trainer's.
        watch: notes the cuts.
    """

    def __init__(self, folder: Path, address: str, metrics: str, url: str) -> None:
        """Connects."""
        self._folder = folder
        self._channel = grpc.insecure_channel(address)
        self.stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self.metrics = metrics
        self.status = Status(folder)
        version = folder / "models" / ONLINE / "1"
        self.watch = Watch(url, read_manifest(version / "assets" / FILE_NAME).generation)
        self._events = (folder / "events.jsonl").open("ab")

    def hand_on(self, events: Events) -> None:
        """Appends events to the trainer's source."""
        self._events.write(events.json_lines())
        self._events.flush()

    def newest_cut(self) -> float:
        """Returns the time of the newest event behind the newest cut, Unix seconds; 0.0: none."""
        cuts = self.watch.cuts
        return cuts[max(cuts)].event_ms / 1000.0 if cuts else 0.0

    def await_trained(self, events: int) -> None:
        """Waits until the newest checkpoint has all events that were handed on."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            status = self.status()
            if status.publishing.gate.closed:
                raise SystemExit(f"{self._folder}: {status.publishing.gate.reason}")
            if status.stream.events >= events and status.checkpoints.step >= status.step:
                return
            time.sleep(_STEP_SECONDS)
        raise SystemExit(f"{self._folder}: no checkpoint of {events:,} events: {status}")

    def update_hourly(self, events: int, probe: Events) -> None:
        """Exports all events so far as a version of the hourly model; waits until it answers."""
        self.await_trained(events)
        before = self._hourly_version(probe)
        export(self._folder, "run", HOURLY)
        end = time.monotonic() + READY_SECONDS
        while self._hourly_version(probe) == before:
            if time.monotonic() > end:
                raise SystemExit(f"{self._folder}: the hourly model is not updated")
            time.sleep(_STEP_SECONDS)

    def close(self) -> None:
        """Closes connections and files."""
        self._events.close()
        self.watch.close()
        self._channel.close()

    def _hourly_version(self, probe: Events) -> int:
        reply = self.stub.Predict(probe.request(HOURLY), timeout=30.0)
        return int(reply.model_spec.version.value)


def export(folder: Path, run: str, name: str) -> None:
    """Runs `platform export` in this process, which has loaded TensorFlow."""
    if platform_main(["export", str(folder / run), "--to", str(folder / "models"), "--name", name]):
        raise SystemExit(f"{folder}: `platform export` of {name} failed")


@contextlib.contextmanager
def running(
    folder: Path, case: Case, seed: int, base: Events, publish_seconds: float
) -> Iterator[System]:
    """Trains the base, starts everything, and ends it when the block does."""
    base.write_csv(folder / "history.csv")
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        config = CONFIG.format(
            seed=seed,
            columns=", ".join(case.columns),
            tables=case.tables,
            port=port_of(redis),
            publish_seconds=publish_seconds,
            label=LABEL,
            time=TIME,
        )
        (folder / "online.yaml").write_text(config)
        with _process(folder, "base", "train", "online.yaml", "--run-dir", "base") as training:
            if training.wait():
                raise SystemExit((folder / "base.log").read_text())
        export(folder, "base", FROZEN)
        shutil.copytree(folder / "models" / FROZEN, folder / "models" / HOURLY)
        (folder / "events.jsonl").touch()
        arguments = ["train", "online.yaml", "--online", "--from", "base", "--run-dir", "run"]
        trainer = stack.enter_context(_process(folder, "online", *arguments))
        _await(folder / "models" / ONLINE / "1", trainer)
        address, metrics = stack.enter_context(_server(folder))
        system = System(folder, address, metrics, f"redis://127.0.0.1:{port_of(redis)}")
        stack.callback(system.close)
        yield system
        trainer.send_signal(signal.SIGTERM)
        trainer.wait()


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[tuple[str, str]]:
    port, rest = free_ports(2)
    served = [_SERVED.format(name=name, base=folder / "models" / name) for name in MODELS]
    (folder / "models.config").write_text("model_config_list {\n" + "\n".join(served) + "\n}\n")
    (folder / "monitoring.config").write_text(_MONITORING)
    arguments = ["serve", "--model_config_file=models.config", f"--port={port}"]
    arguments += [f"--rest_api_port={rest}", "--monitoring_config_file=monitoring.config"]
    arguments += ["--store_timeout_ms=2000", "--file_system_poll_wait_seconds=0.2"]
    with _process(folder, "serve", *arguments) as process:
        wait_until_ready(process, folder / "serve.log")
        yield f"127.0.0.1:{port}", f"http://127.0.0.1:{rest}/metrics"


@contextlib.contextmanager
def _process(folder: Path, log: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{log}.log").open("wb") as file:
        process = subprocess.Popen([*PLATFORM, *arguments], cwd=folder, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _await(path: Path, trainer: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + READY_SECONDS
    while not path.exists():
        if trainer.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"{path} is not there; see online.log:\n{_tail(path.parents[2])}")
        time.sleep(0.1)


def _tail(folder: Path) -> str:
    return (folder / "online.log").read_text()[-2000:]
