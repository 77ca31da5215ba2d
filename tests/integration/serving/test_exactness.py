"""What is served from Redis through a cache is what was trained, to the bit."""

from __future__ import annotations

import concurrent.futures
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from integration.serving.metrics_page import samples_of
from integration.serving.model_configs import model, write_config
from integration.serving.trained_run import export
from native_readers import native_readers
from tensorflow_serving.apis import predict_pb2

from hotrow import _native
from hotrow.cli.main import main
from hotrow.ops import library
from hotrow.serving.client import PredictClient
from hotrow.serving.columns import ColumnInput, column_inputs
from hotrow.serving.wire.tensor import decode_tensor
from hotrow.trainer.data import RawBatch, encode, open_data
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.trained_run import TrainedRun, load_run

# Unknown keys read a default that no narrow type holds; columns of one key, a mean and a sum.
CONFIG = """
name: tiny
data: {format: csv, train: train.csv, valid: valid.csv, batch_size: 256}
features:
  dense: {columns: [I1, I2, I3], transform: log}
  sparse:
    - {columns: [C1, C2, C3], dim: 8}
    - {columns: [mean], dim: 5, separator: "|", combiner: mean}
    - {columns: [sum], dim: 5, separator: "|", combiner: sum}
tables:
  default:
    {optimizer: adagrad, learning_rate: 0.05, initializer: {uniform: 0.05}, default_value: 0.1}
model: {arch: wide_deep, hidden: [16]}
optimizer: {name: adam, learning_rate: 0.001}
"""
TRAINED, VALID = 8000, 2000  # all there is
CLIENTS, BATCH, PASSES = 8, 25, 3
ROW_TYPES = ("bfloat16", "float16", "int8")

Arrays = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Asked:
    """A batch of the validation set, and what the model makes of it offline.

    Attributes:
        columns: values by column.
        embeddings: of each feature, float32 [B, D].
        scores: float32 [B].
    """

    columns: dict[str, Any]
    embeddings: Arrays
    scores: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Trained:
    """A run.

    Attributes:
        folder: with the run in `run`.
        run: it, with its model.
        scores_of: signature of its export with rows in files, in this process.
        raw: the validation set.
        rows: of all tables together.
    """

    folder: Path
    run: TrainedRun
    scores_of: Any
    raw: RawBatch
    rows: int


def csv_line(line: str) -> str:
    """Returns a line of Criteo's as one of ours; some lists of keys are empty or repeat a key."""
    fields = line.rstrip("\n").split("\t")
    several = [word for word in fields[17:21] if word]
    return ",".join([*fields[:4], *fields[14:17], "|".join(several[1:]), "|".join(several * 2)])


@pytest.fixture(scope="module")
def trained(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The run, in a folder of its own."""
    folder = tmp_path_factory.mktemp("trained")
    with gzip.open(shared / "data/criteo_head10k/criteo_head10k.tsv.gz", "rt") as source:
        lines = [csv_line(next(source)) for _ in range(TRAINED + VALID)]
    head = "label,I1,I2,I3,C1,C2,C3,mean,sum"
    (folder / "train.csv").write_text("\n".join([head, *lines[:TRAINED], ""]))
    (folder / "valid.csv").write_text("\n".join([head, *lines[TRAINED:], ""]))
    (folder / "config.yaml").write_text(CONFIG)
    assert main(["train", str(folder / "config.yaml"), "--run-dir", str(folder / "run")]) == 0
    run = load_run(folder / "run")
    data = open_data(folder / "valid.csv", run.config.data, run.config.features)
    raw = next(iter(data.raw_batches(VALID)))
    assert raw.size == VALID
    export(folder, folder / "models", "own")
    library.load()
    scores_of = tf.saved_model.load(str(folder / "models/own/1")).signatures["serving_default"]
    rows = sum(table.size for table in run.model.tables().values())
    return Trained(folder, run, scores_of, raw, rows)


def offline(trained: Trained) -> list[list[Asked]]:
    """Returns the batches of each client, made of its own part of the set in an order of its own.

    Embeddings are those of the model in its present state. Scores are those of its export with
    rows in files, run here: eager TensorFlow and a graph differ in the last bits.
    """
    of_clients = []
    for client, rows in enumerate(np.split(np.arange(VALID), CLIENTS)):
        mixed = np.random.default_rng(client).permutation(rows)
        batches = []
        for chosen in np.split(mixed, len(mixed) // BATCH):
            columns = {name: values[chosen] for name, values in trained.raw.columns.items()}
            batch = encode(RawBatch(columns, None, BATCH), trained.run.config.features)
            inputs = model_inputs(batch)
            embedded = trained.run.model.embed(inputs["sparse"], inputs["weights"])
            arrays = {name: rows.numpy() for name, rows in embedded.items()}
            tensors = {name: tf.constant(values.tolist()) for name, values in columns.items()}
            scores = trained.scores_of(**tensors)["scores"].numpy()
            batches.append(Asked(columns, arrays, scores))
        of_clients.append(batches)
    return of_clients


@pytest.fixture(scope="module")
def expected(trained: Trained) -> list[list[Asked]]:
    """What the model makes of the set, before a test changes its rows."""
    asked = offline(trained)
    first = asked[0][0]
    assert {name: rows.shape[1] for name, rows in first.embeddings.items()} == {
        **dict.fromkeys(("C1", "C2", "C3"), 8),
        **dict.fromkeys(("mean", "sum"), 5),
        **{f"{name}/wide": 1 for name in ("C1", "C2", "C3", "mean", "sum")},
    }
    batches = [batch for client in asked for batch in client]
    assert len({float(score) for batch in batches for score in batch.scores}) > VALID / 2
    return asked


@pytest.fixture(scope="module")
def store(module_redis_servers: Any) -> str:
    """URL of a Redis."""
    url: str = module_redis_servers.standalone().url
    return url


@pytest.fixture(scope="module")
def served(trained: Trained, store: str) -> Path:
    """Base path of a version whose rows are in Redis as float32."""
    export(trained.folder, trained.folder / "models", "float32", f"--store={store}")
    return trained.folder / "models" / "float32"


def predict(server: Any, name: str, signature: str, inputs: Any, batch: Asked) -> Arrays:
    """Returns all outputs."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    for column in inputs:
        for key, proto in column.pack(batch.columns[column.name]).items():
            request.inputs[key].CopyFrom(proto)
    reply = server.prediction.Predict(request, timeout=60)
    return {key: decode_tensor(proto) for key, proto in reply.outputs.items()}


def differences(
    server: Any, name: str, clients: list[list[Asked]], *, scores: bool = True
) -> list[str]:
    """Returns which answers to concurrent clients have other bits than offline."""
    with PredictClient(f"127.0.0.1:{server.port}", name, 60.0) as asking:
        inputs: tuple[ColumnInput, ...] = column_inputs(asking.signature("embeddings")[1])

    def check(client: int) -> list[str]:
        rng = np.random.default_rng(client)
        found = []
        for turn in range(PASSES):
            for number in rng.permutation(len(clients[client])):
                batch = clients[client][number]
                wanted = {"embeddings": batch.embeddings}
                if scores:
                    wanted["serving_default"] = {"scores": batch.scores}
                for signature, arrays in wanted.items():
                    got = predict(server, name, signature, inputs, batch)
                    assert set(got) == set(arrays)
                    found += [
                        f"client {client}, pass {turn}, batch {number}: {key}"
                        for key, rows in arrays.items()
                        if got[key].dtype != np.float32 or got[key].tobytes() != rows.tobytes()
                    ]
        return found

    with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        return [line for lines in pool.map(check, range(len(clients))) for line in lines]


def total(server: Any, counter: str) -> float:
    """Returns the sum of a counter over all tables."""
    name = f"hotrow_{counter}_total{{"
    return sum(value for key, value in samples_of(server).items() if key.startswith(name))


@pytest.mark.parametrize(
    ("percent", "policy", "gpu_bytes"),
    [
        # Rows come and go; every other case is one of its limits.
        pytest.param(10, "lfu", 0, id="10 percent, lfu"),
        pytest.param(10, "lfu", 30_000, id="10 percent, lfu, fewer on a GPU"),
        *[
            pytest.param(percent, policy, gpu_bytes, id=name, marks=pytest.mark.slow)
            for percent, policy, gpu_bytes, name in (
                (0, "lfu", 0, "no cache"),
                (1, "lfu", 0, "1 percent, lfu"),
                (100, "lfu", 0, "100 percent, lfu"),
                (100, "lfu", 10_000_000, "100 percent, lfu, on a GPU, too"),
                (1, "lru", 0, "1 percent, lru"),
                (10, "lru", 0, "10 percent, lru"),
                (10, "lru", 30_000, "10 percent, lru, fewer on a GPU"),
                (100, "lru", 0, "100 percent, lru"),
            )
        ],
    ],
)
def test_concurrent_clients_get_the_embeddings_and_scores_of_training_to_the_bit(
    percent: int,
    policy: str,
    gpu_bytes: int,
    trained: Trained,
    expected: list[list[Asked]],
    served: Path,
    start_server: Any,
    on_emulated_gpus: dict[str, str],
    tmp_path: Path,
) -> None:
    (tmp_path / "monitoring").write_text("prometheus_config { enable: true }")
    rows = trained.rows * percent // 100
    cache = [f"--cache_rows={rows}", f"--cache_policy={policy}"]
    variables = {}
    if gpu_bytes:
        cache += ["--cache_device=gpu", f"--gpu_cache_bytes={gpu_bytes}"]
        variables = on_emulated_gpus
    flags = [*cache, f"--monitoring_config_file={tmp_path}/monitoring"]
    server = start_server("float32", served, *flags, variables=variables)
    server.wait_ready()
    assert differences(server, "float32", expected) == []
    assert total(server, "failed_rows") == 0
    assert total(server, "unknown_keys") > 1000  # of keys that the run never saw
    assert (total(server, "cache_hits") > 1000) == (percent > 0)
    if percent in (1, 10):
        assert total(server, "cache_evicted_rows") > 50
    assert (total(server, "gpu_cache_hits") > 1000) == (gpu_bytes > 0)
    if 0 < gpu_bytes < 100_000:
        assert total(server, "gpu_cache_evicted_rows") > 50


@pytest.mark.slow
def test_rows_of_other_types_are_served_as_they_are_stored(
    trained: Trained, expected: list[list[Asked]], store: str, start_server: Any, tmp_path: Path
) -> None:
    models = []
    for row_type in ROW_TYPES:
        flags = [f"--store={store}", f"--row_type={row_type}"]
        export(trained.folder, tmp_path, row_type, *flags)
        models.append(model(row_type, tmp_path / row_type))
    config = write_config(tmp_path / "models", *models)
    cache = [f"--cache_rows={trained.rows // 10}", "--cache_policy=lru"]
    server = start_server("", "", f"--model_config_file={config}", *cache)
    server.wait_ready()
    tables = trained.run.model.tables().values()
    original = [(table, list(table.export_batches())) for table in tables]
    for row_type in ROW_TYPES:
        for table, batches in original:
            for batch in batches:
                lines = batch.lines.copy()
                weights = table.line_layout.weights(lines)  # a view
                stored = _native.encode_rows(row_type, np.ascontiguousarray(weights))
                weights[:] = native_readers().decode_rows(row_type, table.dim, stored)
                table.import_rows(batch.keys, lines, batch.clocks, batch.counts)
        rounded = offline(trained)
        first, before = rounded[0][0].embeddings, expected[0][0].embeddings
        assert all(
            first[name].tobytes() != before[name].tobytes() for name in ("C1", "mean", "sum")
        )
        assert differences(server, row_type, rounded, scores=False) == []
