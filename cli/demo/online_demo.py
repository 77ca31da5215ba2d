"""The demo of online learning: a stream whose model drifts, a trainer, two servers, a client.

Three models answer for each event before it is trained: `clicks`, which the trainer updates twice a
second; `hourly`, a full export every third of the demo; `frozen`, the first of these. The two take
the place of what is updated every hour and never, with clicks that change so fast that a demo can
show it.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from hotrow.cli.demo.online_answers import EVENTS, REQUESTS, Answers, digest_of
from hotrow.cli.demo.online_report import OnlineReport
from hotrow.cli.demo.online_rows import rows_of_run_and_store
from hotrow.cli.demo.redis_server import redis_server
from hotrow.cli.demo.steps import PLATFORM, free_ports, wait_until_ready
from hotrow.cli.trainer_client import TrainerAccess
from hotrow.cli.trainer_place import find_trainer
from hotrow.errors import HotrowError
from hotrow.protos import online_pb2

READY_SECONDS = 180
_STATUS_SECONDS = 30.0
RATE = 300.0
DRIFT_SECONDS = 40.0
_FIRST_SECONDS = 60.0
"""Of events, in event time, with which training begins."""
HOURS = 3
"""How many updates `hourly` has during the demo."""

CONFIG = """\
# Written by `make demo ONLINE=1`. Keys are described in docs/configuration.md.
name: clicks
seed: 2026
data: {{format: csv, train: history.csv, batch_size: 128, label: click}}
features:
  sparse:
    - {{columns: [user, item, segment, category], dim: 8, hash: true}}
tables: {{default: {{optimizer: adagrad, learning_rate: 0.05, initial_accumulator: 1.0e-3}}}}
model: {{arch: wide_deep, hidden: [16]}}
optimizer: {{name: adam, learning_rate: 0.003}}
checkpoint: {{every_steps: 1000000, every_seconds: 5, keep: 4}}
online:
  source: "redis://127.0.0.1:{port}/?stream=clicks&group=trainer"
  time: ts
  max_batch_seconds: 0.2
  models: models
  store: "redis://127.0.0.1:{port}"
  publish_seconds: 0.5
  window_seconds: 10
  admin: "127.0.0.1:0"
"""
_CLICKS = (
    *("--rate", str(RATE), "--drift-seconds", str(DRIFT_SECONDS)),
    *("--users", "1000", "--items", "500", "--seed", "2026"),
)
_HISTORY = "click,user,item,segment,category\n1,u0,i0,s0,c0\n0,u1,i1,s1,c1\n"
_MONITORING = 'prometheus_config { enable: true path: "/metrics" }\n'
SERVERS = """\
model_config_list {{
  config {{ name: "clicks" base_path: "{folder}/models/clicks" model_platform: "tensorflow" }}
  config {{ name: "hourly" base_path: "{folder}/models/hourly" model_platform: "tensorflow" }}
  config {{ name: "frozen" base_path: "{folder}/models/frozen" model_platform: "tensorflow" }}
}}
"""


@dataclass(frozen=True)
class Served:
    """A running server.

    Attributes:
        address: of gRPC.
        metrics: URL of its page.
    """

    address: str
    metrics: str


class OnlineDemo:
    """One run of the demo.

    Args:
        folder: where everything goes.
        seconds: how long events come once servers answer.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds
        self._report = OnlineReport(folder)

    def run(self) -> None:
        """Runs every step; prints a live table and, at the end, the results; writes the plot.

        Raises:
            HotrowError: a process ends early, or digests differ.
        """
        folder = self._folder
        with contextlib.ExitStack() as stack:
            redis, first, second = free_ports(3)
            stack.enter_context(redis_server(folder, redis))
            (folder / "clicks.yaml").write_text(CONFIG.format(port=redis))
            (folder / "history.csv").write_text(_HISTORY)
            stream = f"redis://127.0.0.1:{redis}/?stream={REQUESTS}"
            self._first_events(redis)
            events = stack.enter_context(self._generator(stream))
            trainer = stack.enter_context(
                self._process("train", "train", "clicks.yaml", "--online", "--run-dir", "run")
            )
            self._await(folder / "models" / "clicks" / "1", trainer)
            self._export("frozen")
            shutil.copytree(folder / "models" / "frozen", folder / "models" / "hourly")
            (folder / "models.config").write_text(SERVERS.format(folder=folder))
            servers = [
                stack.enter_context(self._server(name, port))
                for name, port in (("server-1", first), ("server-2", second))
            ]
            answers = Answers(redis, [server.address for server in servers])
            stack.callback(answers.close)
            pages = [server.metrics for server in servers]
            self._follow(answers, pages)
            events.terminate()
            self._settle(answers)
            status = self._stop(trainer)
            self._report.compare(status, answers, self._digests(answers), pages)
        self._report.finish()

    def _first_events(self, port: int) -> None:
        """Writes the events with which training begins, before any server answers."""
        url = f"redis://127.0.0.1:{port}/?stream={EVENTS}"
        command = [sys.executable, "-m", "hotrow.cli.demo.drifting_clicks", url, *_CLICKS]
        length = ["--seconds", str(_FIRST_SECONDS), "--speed", "max"]
        subprocess.run([*command, *length], cwd=self._folder, check=True)

    def _digests(self, answers: Answers) -> dict[str, str]:
        """Returns the digests of all rows: of trainer, store and servers."""
        version = self._folder / "models" / "clicks" / "1"
        trained, stored = rows_of_run_and_store(self._folder / "run", version, answers.values())
        names = sorted(trained)
        found = {"trainer": digest_of(trained), "store": digest_of(stored)}
        for number in range(2):
            rows = answers.rows(number)
            served = {name: rows[name].reshape(trained[name].shape) for name in names}
            found[f"server {number + 1}"] = digest_of(served)
        return found

    def _follow(self, answers: Answers, metrics: list[str]) -> None:
        """Has events answered, and shows how it goes, until the time is up."""
        began = time.monotonic()
        hours = [began + self._seconds * n / HOURS for n in range(1, HOURS)]
        exports: list[threading.Thread] = []
        shown = began
        while time.monotonic() < began + self._seconds:
            answers.step()
            now = time.monotonic()
            if hours and now >= hours[0]:
                hours.pop(0)
                exports.append(threading.Thread(target=self._export, args=("hourly",)))
                exports[-1].start()
            if now >= shown:
                shown = now + 2.0
                self._report.row(now - began, answers, self._trainer(), metrics)
        for export in exports:
            export.join()

    def _settle(self, answers: Answers) -> None:
        """Waits until the last events are trained, and shown by both servers."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            answers.step()
            status = self._trainer()
            if status.stream.events >= answers.handed_on and not status.publishing.waiting_rows:
                return
            time.sleep(0.2)
        raise HotrowError(f"the trainer does not come to the end of the stream: {status}")

    def _stop(self, trainer: subprocess.Popen[bytes]) -> online_pb2.TrainerStatus:
        """Stops the trainer, which publishes its last state; returns its last status."""
        status = self._trainer()
        trainer.send_signal(signal.SIGTERM)
        trainer.wait(READY_SECONDS)
        return status

    def _trainer(self) -> online_pb2.TrainerStatus:
        place = find_trainer(str(self._folder / "run"))
        with place.client(TrainerAccess()) as client:
            return client.status(_STATUS_SECONDS)

    def _export(self, name: str) -> None:
        """Exports the newest checkpoint with rows of its own."""
        self._platform("export", "run", "--to", "models", "--name", name)

    def _platform(self, *arguments: str) -> None:
        done = subprocess.run(
            [*PLATFORM, *arguments], cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise HotrowError(f"platform {' '.join(arguments)}: {done.stderr.strip()}")

    @contextlib.contextmanager
    def _process(self, log: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        click.echo(f"$ platform {' '.join(arguments)}")
        with (self._folder / f"{log}.log").open("wb") as file:
            process = subprocess.Popen(
                [*PLATFORM, *arguments], cwd=self._folder, stdout=file, stderr=file
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    @contextlib.contextmanager
    def _generator(self, stream: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "hotrow.cli.demo.drifting_clicks", stream, *_CLICKS]
        goes_on = ["--skip-seconds", str(_FIRST_SECONDS)]
        process = subprocess.Popen([*command, *goes_on], cwd=self._folder)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    @contextlib.contextmanager
    def _server(self, name: str, port: int) -> Iterator[Served]:
        (rest,) = free_ports(1)
        (self._folder / "monitoring.config").write_text(_MONITORING)
        arguments = ["serve", "--model_config_file=models.config", f"--port={port}"]
        arguments += [f"--rest_api_port={rest}", "--monitoring_config_file=monitoring.config"]
        arguments += ["--store_timeout_ms=500"]
        with self._process(name, *arguments) as process:
            wait_until_ready(process, self._folder / f"{name}.log")
            yield Served(f"127.0.0.1:{port}", f"http://127.0.0.1:{rest}/metrics")

    def _await(self, path: Path, trainer: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + READY_SECONDS
        while not path.exists():
            if trainer.poll() is not None or time.monotonic() > end:
                raise HotrowError(f"{path} is not there; see {self._folder}/train.log")
            time.sleep(0.1)
