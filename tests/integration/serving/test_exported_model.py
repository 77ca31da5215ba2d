"""Our own exports in the server: their rows come from a store."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hotrow.cli.main import main

CONFIG = """
name: tiny
data: {format: criteo, train: train.tsv, valid: valid.tsv, batch_size: 256}
features:
  dense: {columns: [I1, I2, I3], transform: log}
  sparse: {columns: [C1, C2, C3], dim: 8, hash: true}
tables: {default: {optimizer: adagrad, learning_rate: 0.05, initializer: {uniform: 0.05}}}
model: {arch: dlrm, bottom: [16, 8], top: [16]}
optimizer: {name: adam, learning_rate: 0.001}
"""


@pytest.fixture(scope="module")
def trained(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of 2,000 rows, exported with a store (`own`) and without (`alone`)."""
    folder = tmp_path_factory.mktemp("trained")
    source = shared / "data" / "criteo_head10k" / "criteo_head10k.tsv.gz"
    with gzip.open(source, "rt") as rows:
        lines = [next(rows) for _ in range(2300)]
    (folder / "train.tsv").write_text("".join(lines[:2000]))
    (folder / "valid.tsv").write_text("".join(lines[2000:]))
    (folder / "config.yaml").write_text(CONFIG)
    run = str(folder / "run")
    assert main(["train", str(folder / "config.yaml"), "--run-dir", run]) == 0
    assert main(["export", run, "--to", str(folder / "models"), "--name", "own"]) == 0
    alone = ("--name", "alone", "--standalone")
    assert main(["export", run, "--to", str(folder / "models"), *alone]) == 0
    return folder


def _scores(server: Any, folder: Path, tmp_path: Path) -> list[float]:
    report = tmp_path / "scores.json"
    arguments = ["--server", f"127.0.0.1:{server.port}", "--model", server.model]
    data = ["--data", str(folder / "valid.tsv"), "--json", str(report)]
    assert main(["predict", *arguments, *data]) == 0
    scores: list[float] = json.loads(report.read_text())["scores"]
    return scores


def test_an_export_scores_the_same_with_its_store_another_store_and_none(
    trained: Path, tmp_path: Path, start_server: Any
) -> None:
    models = trained / "models"
    own = start_server("own", models / "own")
    own.wait_ready()
    expected = _scores(own, trained, tmp_path)
    assert len(expected) == 300
    assert len(set(expected)) > 250
    alone = start_server("alone", models / "alone")
    alone.wait_ready()
    assert _scores(alone, trained, tmp_path) == pytest.approx(expected, abs=1e-6)
    moved = tmp_path / "moved"
    shutil.copytree(models / "own", moved)
    (moved / "1" / "rows").rename(tmp_path / "store")
    other = start_server("own", moved, f"--store=file://{tmp_path}/store")
    other.wait_ready()
    assert _scores(other, trained, tmp_path) == expected


def test_an_export_answers_over_rest(trained: Path, tmp_path: Path, start_server: Any) -> None:
    server = start_server("own", trained / "models" / "own")
    server.wait_ready()
    expected = _scores(server, trained, tmp_path)
    fields = (trained / "valid.tsv").read_text().split("\n")[0].split("\t")
    row = {f"I{i}": float(fields[i] or "nan") for i in (1, 2, 3)}
    words = {f"C{i}": fields[13 + i] for i in (1, 2, 3)}
    status, body = server.rest_predict({"instances": [{**row, **words}]})
    assert status == 200
    assert json.loads(body)["predictions"][0] == pytest.approx(expected[0], abs=1e-6)


def test_a_version_whose_store_is_gone_leaves_the_older_one_serving(
    trained: Path, tmp_path: Path, start_server: Any
) -> None:
    base = tmp_path / "own"
    shutil.copytree(trained / "models" / "own", base)
    server = start_server("own", base, "--max_num_load_retries=0")
    server.wait_ready()
    expected = _scores(server, trained, tmp_path)
    shutil.copytree(base / "1", base / "tmp")
    shutil.rmtree(base / "tmp" / "rows")
    (base / "tmp").rename(base / "2")
    server.wait_for_log(
        f"version 2 failed to load (attempt 1 of 1, gave up): {base}/2/rows/data.mdb"
    )
    assert _scores(server, trained, tmp_path) == expected
