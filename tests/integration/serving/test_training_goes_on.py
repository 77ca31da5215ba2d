"""A server takes what was trained since its version, each state whole and under load."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from integration.serving.steady_load import Answer, SteadyLoad, requests_of
from integration.serving.trained_run import CONFIG, export, first_lines
from tensorflow_serving.apis import predict_pb2

from hotrow.cli.main import main
from hotrow.manifest import read_manifest
from hotrow.ops import library
from hotrow.serving.wire.tensor import decode_tensor
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.cuts import cuts_of
from hotrow.store.generations import Generations
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation
from hotrow.trainer.data import encode, open_data
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.trained_run import load_run

Scores = list[tuple[float, ...]]

FIRST_STEPS, MORE_STEPS = 50, 50
STEPS_OF_A_LARGE_CUT = 1000  # so that there is a half-way
REQUESTS, ROWS = 15, 20


class Model:
    """A run whose exports are served from a store.

    Args:
        shared: the shared data.
        folder: of the run.
        url: of the store.
    """

    def __init__(self, shared: Path, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        lines = first_lines(shared, 2300)
        (folder / "train.tsv").write_text("".join(lines[:2000]))
        (folder / "valid.tsv").write_text("".join(lines[2000:]))
        (folder / "config.yaml").write_text(CONFIG)
        self.requests = requests_of(folder / "valid.tsv", REQUESTS, ROWS)
        self.train(FIRST_STEPS)
        # Many shards: a cut has many blocks, so that there is a half-way.
        export(folder, folder / "models", "m", f"--store={url}", "--store_shards=1024")

    def train(self, steps: int) -> None:
        """Trains on, up to so many steps."""
        command = ["train", str(self.folder / "config.yaml"), "--run-dir", str(self.folder / "run")]
        more = ["--set", f"train.max_steps={steps}", "--set", "train.epochs=1000"]
        resume = ["--resume"] if (self.folder / "run").exists() else []
        assert main([*command, *more, "--set", "data.batch_size=64", *resume]) == 0

    def scores(self, name: str) -> Scores:
        """Returns the scores of the run's present state, from a graph in this process.

        Args:
            name: of an export that is made for it.
        """
        export(self.folder, self.folder / "models", name)
        library.load()
        loaded = tf.saved_model.load(str(self.folder / "models" / name / "1"))
        scores_of = loaded.signatures["serving_default"]
        answers = []
        for request in self.requests:
            inputs = {n: tf.constant(decode_tensor(t)) for n, t in request.inputs.items()}
            answers.append(tuple(scores_of(**inputs)["scores"].numpy().tolist()))
        return answers

    def changes(self) -> subprocess.Popen[str]:
        """Begins an incremental export in a process of its own."""
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "hotrow.cli.main", "export", str(self.folder / "run")),
                *("--to", str(self.folder / "models"), "--name", "m", "--incremental"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def generation(self, store: RowStore) -> Generation:
        """Returns that of the version."""
        manifest = read_manifest(self.folder / "models/m/1/assets/hotrow_manifest.json")
        return Generations(store.records).get(manifest.generation)


@pytest.fixture
def model(shared: Path, tmp_path: Path, redis_servers: Any) -> Model:
    """A model in Redis."""
    return Model(shared, tmp_path, redis_servers.standalone().url)


def check_embeddings(server: Any, model: Model) -> None:
    """Checks that served embeddings of the validation set are those of the run, to the bit."""
    run = load_run(model.folder / "run")
    data = open_data(model.folder / "valid.tsv", run.config.data, run.config.features)
    raw = next(iter(data.raw_batches(REQUESTS * ROWS)))
    inputs = model_inputs(encode(raw, run.config.features))
    expected = run.model.embed(inputs["sparse"], inputs["weights"])
    request = predict_pb2.PredictRequest()
    for part in model.requests:
        for name, tensor in part.inputs.items():
            values = decode_tensor(tensor)
            if name in request.inputs:
                values = np.concatenate([decode_tensor(request.inputs[name]), values])
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    request.model_spec.name = "m"
    request.model_spec.signature_name = "embeddings"
    served = server.prediction.Predict(request, timeout=30).outputs
    assert served.keys() == expected.keys()
    for name, rows in expected.items():
        assert decode_tensor(served[name]).tobytes() == rows.numpy().tobytes(), name


def check_whole(answers: Sequence[Answer], before: Scores, after: Scores) -> tuple[int, int]:
    """Checks that every answer is of one state, and none older than one that came before it.

    Returns:
        How many are of the state before, and of the one after.
    """
    old, new = [], []
    for answer in answers:
        assert answer.scores is not None, f"{answer.code}: {answer.text}"
        if answer.scores == after[answer.request]:
            new.append(answer)
        else:
            assert answer.scores == before[answer.request], answer
            old.append(answer)
    if old and new:
        assert max(a.began for a in old) <= min(a.began + a.seconds for a in new)
    return len(old), len(new)


def test_an_incremental_export_is_seen_whole_and_to_the_bit(
    model: Model, start_server: Any
) -> None:
    before = model.scores("before")
    server = start_server("m", model.folder / "models" / "m", "--cache_rows=300")
    server.wait_ready()
    model.train(FIRST_STEPS + MORE_STEPS)
    after = model.scores("after")
    assert all(old != new for old, new in zip(before, after, strict=True))
    with SteadyLoad(server, model.requests) as load:
        load.wait_until(lambda: len(load.answers()) > 200)
        with model.changes() as exporter:
            assert exporter.stdout is not None
            line = exporter.stdout.readline()
            assert f"Committed step {FIRST_STEPS + MORE_STEPS}" in line, line
            rest, errors = exporter.communicate(timeout=60)
        assert exporter.returncode == 0, errors
        assert "all servers have taken it" in rest
        # How soon after the commit is measured by benchmarks/incremental_export.py.
        taken = time.monotonic()
        load.wait_until(lambda: len(load.answers(taken)) > 200)
    old, new = check_whole(load.answers(), before, after)
    assert old > 200
    assert new > 200
    assert all(answer.scores == after[answer.request] for answer in load.answers(taken))
    check_embeddings(server, model)
    with contextlib.closing(open_store(model.url, StoreAccess())) as store:
        assert [cut.folded for cut in cuts_of(store.records, model.generation(store))] == [True]


@pytest.mark.slow
def test_an_incremental_export_that_is_killed_half_way_changes_nothing_and_runs_again(
    model: Model, start_server: Any
) -> None:
    before = model.scores("before")
    server = start_server("m", model.folder / "models" / "m", "--cache_rows=300")
    server.wait_ready()
    model.train(FIRST_STEPS + STEPS_OF_A_LARGE_CUT)
    after = model.scores("after")
    opened = contextlib.closing(open_store(model.url, StoreAccess()))
    with SteadyLoad(server, model.requests) as load, opened as store:
        generation = model.generation(store)
        with model.changes() as exporter:
            while not store.records.names("staging/"):
                assert exporter.poll() is None
                time.sleep(0.0005)
            os.kill(exporter.pid, signal.SIGKILL)
        assert exporter.returncode == -signal.SIGKILL
        assert cuts_of(store.records, generation) == []
        assert store.records.names("staging/")
        killed = time.monotonic()
        load.wait_until(lambda: len(load.answers(killed)) > 200)
        assert check_whole(load.answers(), before, after)[1] == 0
        # Its lease has to end first.
        end = time.monotonic() + 60
        while True:
            with model.changes() as again:
                output, errors = again.communicate(timeout=60)
            if again.returncode == 0:
                break
            assert "is held by" in errors, errors
            assert time.monotonic() < end
            time.sleep(1)
        assert "all servers have taken it" in output
        done = time.monotonic()
        load.wait_until(lambda: len(load.answers(done)) > 200)
        check_whole(load.answers(), before, after)
        assert all(a.scores == after[a.request] for a in load.answers(done))
        assert store.records.names("staging/") == []
        assert [cut.folded for cut in cuts_of(store.records, generation)] == [True]
    check_embeddings(server, model)
