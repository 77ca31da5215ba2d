"""A model of Parquet lists, and of columns named like keys of a configuration, from file to score.

Each score that a server gives equals the trained model's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from hotrow.cli.main import main
from hotrow.trainer.data import encode, open_data
from hotrow.trainer.model_inputs import model_inputs
from hotrow.trainer.trained_run import load_run

CONFIG = """\
name: lists
data: {format: parquet, train: rows.parquet, label: y, positive: "yes", batch_size: 64}
features:
  dense: {columns: [age]}
  sparse:
    - {columns: [default, tags, wide], dim: 3, combiner: mean}
    - {columns: [seen], dim: 2, hash: false}
tables: {default: {learning_rate: 0.3, initializer: {uniform: 0.5}}}
model: {arch: wide_deep, hidden: [8]}
train: {epochs: 2}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `rows.parquet`, a run and its export."""
    folder = tmp_path_factory.mktemp("lists")
    draw = np.random.default_rng(0)
    words = np.array(["red", "big", "new", ""])
    rows = range(400)
    tags = [None if i % 9 == 0 else list(draw.choice(words, i % 4)) for i in rows]
    table = pa.table(
        {
            "y": [("yes", "no")[i % 2] for i in rows],
            "age": draw.normal(size=400),
            "default": draw.choice(["no", "yes", "unknown"], 400),
            "wide": draw.choice(["a", "b"], 400),
            "tags": pa.array(tags, pa.list_(pa.string())),
            "seen": pa.array(
                [[int(n) for n in draw.integers(0, 50, i % 3)] for i in rows],
                pa.large_list(pa.int64()),
            ),
        }
    )
    pq.write_table(table, folder / "rows.parquet")
    (folder / "lists.yaml").write_text(CONFIG)
    assert main(["train", str(folder / "lists.yaml"), "--run-dir", str(folder / "run")]) == 0
    export = ["--to", str(folder / "models"), "--name", "lists"]
    assert main(["export", str(folder / "run"), *export]) == 0
    return folder


def test_a_server_scores_lists_as_the_trained_model_does(
    trained: Path, tmp_path: Path, start_server: Any
) -> None:
    run = load_run(trained / "run")
    assert {"default/deep", "wide/deep", "default/wide", "wide/wide"} <= run.model.tables().keys()
    file = open_data(trained / "rows.parquet", run.config.data, run.config.features)
    (raw,) = file.raw_batches(400)
    expected = tf.sigmoid(run.model(model_inputs(encode(raw, run.config.features)))).numpy()
    assert expected.std() > 0.05

    server = start_server("lists", trained / "models" / "lists")
    server.wait_ready()
    report = tmp_path / "scores.json"
    address = ["--server", f"127.0.0.1:{server.port}", "--model", "lists"]
    data = ["--data", str(trained / "rows.parquet"), "--json", str(report)]
    assert main(["predict", *address, *data, "--label", "y", "--positive", "yes"]) == 0
    scores = json.loads(report.read_text())["scores"]
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6)

    # The same row over REST and as a tf.Example; an empty text in a request is dropped, too.
    row = {"age": [float(raw.columns["age"][5])], "default": [""], "wide": ["a"]}
    row |= {"tags": ["big", "", "new"], "tags_row_splits": [0, 3]}
    row |= {"seen": [7, 8], "seen_row_splits": [0, 2]}
    status, body = server.rest_predict({"inputs": row})
    assert status == 200, body
    (score,) = json.loads(body)["outputs"]
    example = {"age": row["age"], "wide": ["a"], "tags": ["big", "new"], "seen": [7, 8]}
    request = {"signature_name": "regress", "examples": [example]}
    status, body = server.rest_predict(request, verb="regress")
    assert status == 200, body
    assert json.loads(body)["results"] == pytest.approx([score], abs=1e-6)


def test_a_resumed_run_knows_its_lists(trained: Path) -> None:
    more = ["--run-dir", str(trained / "run"), "--resume", "--set", "train.epochs=3"]
    assert main(["train", str(trained / "lists.yaml"), *more]) == 0
    assert load_run(trained / "run").position.step == 21
