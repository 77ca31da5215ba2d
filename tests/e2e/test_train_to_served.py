"""The whole way, as a user goes it: generate, train, export, serve, predict."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
from free_ports import free_port
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from hotrow.trainer.data import encode, open_data
from hotrow.trainer.evaluation import evaluate_file
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.train_step import make_forward
from hotrow.trainer.trained_run import load_run

CONFIG = """\
name: e2e
seed: 5
data: {format: criteo, train: train.tsv.gz, valid: valid.tsv.gz, batch_size: 512}
features:
  dense: {columns: [I1, I2, I3, I4, I5, I6, I7, I8, I9], transform: log}
  sparse:
    columns: [C1, C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13, C14, C15, C16, C17, C18]
    dim: 8
tables: {default: {optimizer: adagrad, learning_rate: 0.1, initializer: {uniform: 0.05}}}
model: {arch: dlrm, bottom: [16, 8], top: [32]}
optimizer: {name: adam, learning_rate: 0.002}
"""


def platform(*arguments, cwd):
    command = [sys.executable, "-m", "hotrow.cli.main", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A trained and exported model of generated rows."""
    folder = tmp_path_factory.mktemp("e2e")
    platform(
        "data", "generate", "train.tsv.gz", "--rows", 60000, "--valid-rows", 3000,
        "--valid-out", "valid.tsv.gz", cwd=folder,
    )  # fmt: skip
    (folder / "config.yaml").write_text(CONFIG)
    platform("train", "config.yaml", "--run-dir", "run", "--json", "trained.json", cwd=folder)
    platform("export", "run", "--to", "base", "--name", "m", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def server(work):
    """A real server over the export; yields (gRPC address, REST URL)."""
    ports = [free_port(), free_port()]
    command = [
        sys.executable, "-m", "hotrow.cli.main", "serve", "--model_name=m",
        f"--model_base_path={work / 'base' / 'm'}", f"--port={ports[0]}",
        f"--rest_api_port={ports[1]}",
    ]  # fmt: skip
    with (work / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 120
        while "Serving m" not in (work / "server.log").read_text():
            assert process.poll() is None, (work / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}/v1/models/m"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def run(work):
    return load_run(work / "run")


@pytest.fixture(scope="module")
def raw(work, run):
    data = open_data(work / "valid.tsv.gz", run.config.data, run.config.features)
    return next(iter(data.raw_batches(100000)))


def served(address, signature, raw, rows=slice(None)):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "m"
    request.model_spec.signature_name = signature
    for name, values in raw.columns.items():
        part = values[rows]
        values = part.tolist() if part.dtype == object else part
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    with grpc.insecure_channel(address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.Predict(request, timeout=60)
    return {name: tf.make_ndarray(value) for name, value in response.outputs.items()}


def digests(run):
    return {name: table.digest() for name, table in run.model.tables().items()}


@pytest.mark.slow
def test_served_embeddings_equal_those_of_training_bit_for_bit(server, run, raw):
    inputs = model_inputs(encode(raw, run.config.features))
    expected = run.model.embed(inputs["sparse"], inputs["weights"])
    pooled = served(server[0], "embeddings", raw)
    assert pooled.keys() == expected.keys()
    for name, rows in expected.items():
        assert np.abs(rows.numpy()).max() > 0
        assert pooled[name].tobytes() == rows.numpy().tobytes(), name


def test_served_scores_equal_offline_scores_over_all_validation_rows(server, run, raw):
    offline = tf.sigmoid(run.model(model_inputs(encode(raw, run.config.features)))).numpy()
    scores = served(server[0], "", raw)["scores"]
    assert len(scores) == 3000
    np.testing.assert_allclose(scores, offline, rtol=0, atol=1e-5)


def test_evaluation_and_serving_leave_every_digest_unchanged(server, work, run, raw):
    before = digests(run)
    store = (work / "base" / "m" / "1" / "rows" / "data.mdb").read_bytes()
    evaluate_file(make_forward(run.model, run.config), run.config, work / "valid.tsv.gz")
    # Keys that training has not seen.
    strange = encode(raw, run.config.features)
    for keys in strange.sparse.values():
        keys.keys[:] = np.arange(len(keys.keys))
    run.model(model_inputs(strange))
    served(server[0], "", raw)
    assert digests(run) == before
    assert (work / "base" / "m" / "1" / "rows" / "data.mdb").read_bytes() == store
    inspected = platform("inspect", "base/m/1", cwd=work)
    assert "rows match: True" in inspected.stdout


def test_unknown_keys_read_the_default_row_alike_everywhere(server, run, raw):
    class Unknown:
        columns = {  # noqa: RUF012
            name: np.array([b"never seen"] * 2, object) if values.dtype == object else values[:2]
            for name, values in raw.columns.items()
        }

    pooled = served(server[0], "embeddings", Unknown)
    for name, rows in pooled.items():
        assert not rows.any(), name


def test_rest_gives_the_same_scores(server, raw):
    rows = []
    for i in range(5):
        row = {}
        for name, values in raw.columns.items():
            value = values[i]
            row[name] = value.decode() if isinstance(value, bytes) else float(value)
        rows.append(row)
    body = json.dumps({"instances": rows}).encode()
    with urllib.request.urlopen(f"{server[1]}:predict", body, timeout=60) as response:
        scores = json.load(response)["predictions"]
    np.testing.assert_allclose(scores, served(server[0], "", raw, slice(5))["scores"], atol=1e-6)


def test_evaluate_over_grpc_gives_the_offline_auc(server, work):
    platform(
        "evaluate", "--server", server[0], "--model", "m", "--data", "valid.tsv.gz",
        "--json", "evaluated.json", cwd=work,
    )  # fmt: skip
    evaluated = json.loads((work / "evaluated.json").read_text())
    trained = json.loads((work / "trained.json").read_text())
    assert evaluated["rows"] == 3000
    # Two rows whose scores differ by rounding may have another order, which is worth up to 1e-6.
    assert evaluated["auc"] == pytest.approx(trained["valid_auc"], abs=1e-6)
    assert evaluated["logloss"] == pytest.approx(trained["valid_logloss"], abs=1e-7)


def test_the_learner_comes_near_the_true_model(work):
    truth = json.loads((work / "train.tsv.gz.truth.json").read_text())
    trained = json.loads((work / "trained.json").read_text())
    # A part of the columns and 60,000 rows: better than chance by far, and never above the truth.
    assert 0.6 < trained["valid_auc"] < truth["files"][1]["true_auc"]


def test_a_damaged_store_is_found_by_inspect(work, tmp_path):
    subprocess.run(["cp", "-r", work / "base", tmp_path / "base"], check=True)
    data = tmp_path / "base" / "m" / "1" / "rows" / "data.mdb"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    data.write_bytes(content)
    command = [sys.executable, "-m", "hotrow.cli.main", "inspect", str(tmp_path / "base/m/1")]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 1
    assert answer.stderr.startswith("Error: ")
    assert answer.stderr.count("\n") == 1


def test_the_readme_program_runs(tmp_path):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    program = readme.split("```python\n", 1)[1].split("```", 1)[0]
    assert len(program.strip().splitlines()) <= 20
    (tmp_path / "program.py").write_text(program)
    answer = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip()


def test_gzip_files_of_the_generator_are_criteo_rows(work):
    with gzip.open(work / "valid.tsv.gz", "rt") as file:
        fields = file.readline().rstrip("\n").split("\t")
    assert len(fields) == 40
