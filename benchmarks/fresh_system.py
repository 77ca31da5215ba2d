"""Trainer, server and their status, for benchmarks of online learning.

A model of two features, whose runs and events are files of one folder.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import serving_load

from hotrow.protos import online_pb2, online_pb2_grpc
from hotrow.store import open_store
from hotrow.store.cuts import CutRecord, cuts_of
from hotrow.store.generations import Generations

HERE = Path(__file__).parent
DIM = 16
CONFIG = """\
name: fresh
data: {{format: csv, train: history.csv, batch_size: {batch}, label: clicked}}
features:
  dense: {{columns: [price]}}
  sparse: {{columns: [user, item], dim: {dim}, hash: false}}
tables: {{default: {{optimizer: adagrad, learning_rate: 0.05}}}}
model: {{arch: dlrm, bottom: [16, {dim}], top: [16]}}
optimizer: {{name: sgd, learning_rate: 0.01}}
checkpoint: {{every_steps: 1000000, every_seconds: 60, keep: 2}}
online:
  source: "{source}"
  time: time
  publish_seconds: {publish_seconds}
  max_batch_seconds: 0.1
  frozen: false
"""
ADMIN = '  admin: "127.0.0.1:0"\n'
"""Ends the configuration of a trainer that publishes nothing."""
PUBLISHING = (
    ADMIN
    + """\
  models: {folder}/models
  store: redis://127.0.0.1:{port}
"""
)
"""Ends that of one that publishes."""
BESIDE = ["chrt", "--idle", "0"]
"""Stands before the commands of trainer and writer."""
FIRST = ["chrt", "--rr", "1"]
"""Stands before the command of what goes before all that."""


class Watch:
    """Notes each cut of a store as it is committed, in a thread."""

    def __init__(self, url: str, generation: str) -> None:
        self.cuts: dict[int, CutRecord] = {}
        self._store = open_store(url)
        self._generation = Generations(self._store.records).get(generation)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()
        self._store.close()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for cut in cuts_of(self._store.records, self._generation):
                self.cuts.setdefault(cut.version, cut)


@contextlib.contextmanager
def trainer(
    folder: Path, *flags: str, run: str = "run", first: Sequence[str] = BESIDE
) -> Iterator[subprocess.Popen[Any]]:
    """Runs `platform train --online` until the block ends; `first` stands before its command."""
    command = [*first, sys.executable, "-m", "hotrow.cli.main", "train", "fresh.yaml", "--online"]
    with (folder / "train.log").open("a") as log:
        process = subprocess.Popen(
            [*command, "--run-dir", run, *flags], cwd=folder, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        print((folder / "train.log").read_text()[-600:])


@contextlib.contextmanager
def server(folder: Path, first: Sequence[str] = ()) -> Iterator[tuple[str, list[int]]]:
    """Runs `platform serve`; yields its address and process ids. `first` as in `trainer`."""
    port = serving_load.free_port()
    command = [*first, sys.executable, "-m", "hotrow.cli.main", "serve", "--model_name=fresh"]
    command += [f"--model_base_path={folder}/models/fresh", f"--port={port}"]
    command += ["--cache_rows=1000000", "--store_timeout_ms=2000"]
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        print(process.stdout.readline().strip(), flush=True)
        yield f"127.0.0.1:{port}", serving_load.descendants(process.pid)
    finally:
        process.terminate()
        process.wait()


def redis_pid(client: Any) -> int:
    """Returns the process id of a Redis."""
    return int(client.info("server")["process_id"])


class Status:
    """The status of a trainer."""

    def __init__(self, folder: Path, run: str = "run") -> None:
        path = folder / run / "admin.json"
        while not path.exists():
            time.sleep(0.1)
        address = json.loads(path.read_text())["address"]
        self._stub = online_pb2_grpc.OnlineTrainerStub(grpc.insecure_channel(address))

    def __call__(self) -> online_pb2.TrainerStatus:
        """Returns the status now."""
        return self._stub.Status(online_pb2.StatusRequest(), timeout=10.0)


def traffic(*arguments: Any, first: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Starts a process of `fresh_traffic.py`; `first` stands before its command."""
    command = [*first, sys.executable, str(HERE / "fresh_traffic.py"), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def writer(events: Path, rate: float, seconds: float) -> subprocess.Popen[str]:
    """Starts to write events to a file."""
    return traffic("write", events, rate, seconds, first=BESIDE)
