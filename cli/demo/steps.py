"""The steps of the demo. Each runs a user's command as a process of its own."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from hotrow.cli.demo.criteo_rows import example_rows, split_rows
from hotrow.cli.demo.redis_server import redis_server
from hotrow.cli.demo.report import Report
from hotrow.errors import HotrowError

HERE = Path(__file__).resolve().parent
PLATFORM = [sys.executable, "-m", "hotrow.cli.main"]
MODEL = "criteo"
READY_SECONDS = 120
SMALL_ROWS = 100_000

CONFIG = """\
# Written by `make demo`. Keys are described in docs/configuration.md.
name: demo
seed: 2026
data: {{format: criteo, train: data/train.tsv.gz, valid: data/valid.tsv.gz, batch_size: {batch}}}
features:
  dense: {{columns: [{dense}], transform: log, standardize: true}}
  sparse: {{columns: [{sparse}], dim: 8, hash: true}}
tables:
  default: {{optimizer: adagrad, learning_rate: 0.01, initial_accumulator: 1.0e-4}}
  wide: {{learning_rate: 0.02}}
model: {{arch: wide_deep, hidden: [64, 32], dropout: 0.2}}
optimizer: {{name: adam, learning_rate: 0.001}}
train: {{epochs: {epochs}}}
"""


class Demo:
    """One run of the demo in `folder`, on `data` or on generated rows."""

    def __init__(self, folder: Path, data: Path | None, rows: int, store: str | None) -> None:
        self._folder = folder
        self._data = data
        self._rows = rows
        self._store = store
        self._train_rows = 0
        self._report = Report()

    def run(self) -> None:
        """Runs every step, prints the report and writes `report.json`."""
        with self._report.stage("data"):
            self._make_data()
        with self._report.stage("train"):
            self._train()
        with contextlib.ExitStack() as stack:
            url = None
            if self._store == "redis":
                (port,) = free_ports(1)
                url = stack.enter_context(redis_server(self._folder, port))
            with self._report.stage("export"):
                self._export(url)
            with self._report.stage("serve"):
                # The cache holds only a part of the rows, so that hits and misses both occur.
                flags = [] if url is None else [f"--cache_rows={self._cache_rows()}"]
                grpc, rest = stack.enter_context(self._server("hotrow", *flags))
                self._predict_three_rows(grpc, rest)
                with self._report.stage("evaluate"):
                    self._evaluate(grpc)
        with self._report.stage("compare"):
            self._compare()
        self._report.write(self._folder / "report.json")
        click.echo(self._report.text())
        self._report.check()

    def _platform(self, *arguments: str) -> None:
        click.echo(f"$ platform {' '.join(arguments)}")
        subprocess.run([*PLATFORM, *arguments], check=True, cwd=self._folder)

    def _read(self, name: str) -> Any:
        return json.loads((self._folder / "data" / name).read_text())

    def _make_data(self) -> None:
        (self._folder / "data").mkdir()
        train = self._folder / "data" / "train.tsv.gz"
        if self._data is not None:
            self._train_rows = split_rows(self._data, train, train.with_name("valid.tsv.gz"))
            return
        self._train_rows = self._rows
        valid_rows = max(200, self._rows // 10)
        self._platform(
            "data", "generate", "data/train.tsv.gz", "--rows", str(self._rows), "--valid-rows",
            str(valid_rows), "--valid-out", "data/valid.tsv.gz", "--seed", "2026",
        )  # fmt: skip

    def _train(self) -> None:
        config = CONFIG.format(
            dense=", ".join(f"I{i}" for i in range(1, 14)),
            sparse=", ".join(f"C{i}" for i in range(1, 27)),
            # A small file needs more passes, in smaller batches.
            epochs=2 if self._train_rows >= SMALL_ROWS else 5,
            batch=1024 if self._train_rows >= SMALL_ROWS else 256,
        )
        (self._folder / "config.yaml").write_text(config)
        self._platform("train", "config.yaml", "--run-dir", "run", "--json", "data/trained.json")
        trained = self._read("trained.json")
        self._report.set(
            train_samples_per_second=trained["samples_per_second"],
            valid_auc=trained["valid_auc"],
            valid_logloss=trained["valid_logloss"],
        )

    def _export(self, url: str | None) -> None:
        common = ["--name", MODEL]
        store = [] if url is None else ["--store", url]
        self._platform(
            *("export", "run", "--to", "models/hotrow", *common, *store),
            *("--json", "data/exported.json"),
        )
        self._platform("export", "run", "--to", "models/standalone", *common, "--standalone")
        self._report.set(rows_exported=self._read("exported.json")["rows"])

    def _cache_rows(self) -> int:
        rows: int = self._read("exported.json")["rows"]
        return max(1, rows // 10)

    @contextlib.contextmanager
    def _server(self, export: str, *flags: str) -> Iterator[tuple[int, int]]:
        """Serves an export on free ports and yields (gRPC port, REST port)."""
        grpc, rest = free_ports(2)
        command = [
            *PLATFORM, "serve", "--model_name", MODEL, "--model_base_path",
            str(self._folder / "models" / export / MODEL), "--port", str(grpc),
            "--rest_api_port", str(rest), *flags,
        ]  # fmt: skip
        click.echo(f"$ platform {' '.join(command[3:])}")
        log = self._folder / "server.log"
        with log.open("w") as output:
            server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_until_ready(server, log)
            yield grpc, rest
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(timeout=30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def _predict_three_rows(self, grpc: int, rest: int) -> None:
        """Scores three rows with TensorFlow Serving's own stub and with curl."""
        rows = example_rows(self._folder / "data" / "valid.tsv.gz", 3)
        request = self._folder / "data" / "request.json"
        request.write_text(json.dumps({"instances": rows}))
        url = f"http://127.0.0.1:{rest}/v1/models/{MODEL}:predict"
        by_stub = subprocess.run(
            [sys.executable, str(HERE / "stub_client.py"), f"127.0.0.1:{grpc}", MODEL, request],
            check=True,
            capture_output=True,
            text=True,
        )
        by_curl = subprocess.run(
            ["curl", "--silent", "--show-error", "--fail", "--data", f"@{request}", url],
            check=True,
            capture_output=True,
            text=True,
        )
        scores = json.loads(by_stub.stdout), json.loads(by_curl.stdout)["predictions"]
        click.echo(f"  gRPC {scores[0]}\n  REST {scores[1]}")
        if not np.allclose(scores[0], scores[1], rtol=0, atol=1e-6):
            raise HotrowError(f"gRPC and REST disagree: {scores[0]} and {scores[1]}")

    def _evaluate(self, grpc: int) -> None:
        common = ["--server", f"127.0.0.1:{grpc}", "--model", MODEL, "--data", "data/valid.tsv.gz"]
        self._platform("evaluate", *common, "--json", "data/evaluated.json")
        click.echo(f"$ platform predict {' '.join(common)} --json data/served.json > /dev/null")
        subprocess.run(
            [*PLATFORM, "predict", *common, "--json", "data/served.json"],
            check=True,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
        )
        self._report.set(served_auc=self._read("evaluated.json")["auc"])

    def _compare(self) -> None:
        """Compares served scores with those of the trained model, over all validation rows."""
        valid = str(self._folder / "data" / "valid.tsv.gz")
        run = [sys.executable, str(HERE / "offline_scores.py"), str(self._folder / "run"), valid]
        standalone = [
            sys.executable, str(HERE / "standalone_scores.py"),
            str(self._folder / "models" / "standalone" / MODEL / "1"), valid,
        ]  # fmt: skip
        offline, alone = (_scores_of(command) for command in (run, standalone))
        served = np.array(self._read("served.json")["scores"])
        if not len(offline) == len(alone) == len(served):
            counts = f"{len(offline)}, {len(served)}, {len(alone)}"
            raise HotrowError(f"offline, served and standalone scores of {counts} rows")
        self._report.set(
            valid_rows=len(offline),
            max_abs_diff=float(np.abs(served - offline).max()),
            max_abs_diff_standalone=float(np.abs(alone - offline).max()),
        )


def _scores_of(command: list[str]) -> Any:
    answer = subprocess.run(command, check=True, capture_output=True)
    return np.array(json.loads(answer.stdout))


def free_ports(count: int) -> list[int]:
    """Returns TCP ports on which no process listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


def wait_until_ready(server: subprocess.Popen[bytes], log: Path) -> None:
    """Returns once a server's log says that it serves.

    Raises:
        HotrowError: it ended, or takes too long.
    """
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        text = log.read_text()
        if server.poll() is not None:
            last = text.strip().splitlines()[-1:] or ["nothing printed"]
            raise HotrowError(f"the server ended: {last[0]}")
        if "Serving " in text:
            return
        time.sleep(0.1)
    raise HotrowError(f"the server is not ready after {READY_SECONDS} s; see {log}")
