"""A small trained run, and what its exports answer."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

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


def first_lines(shared: Path, count: int) -> list[str]:
    """Returns lines of Criteo's data."""
    source = shared / "data" / "criteo_head10k" / "criteo_head10k.tsv.gz"
    with gzip.open(source, "rt") as rows:
        return [next(rows) for _ in range(count)]


def train(shared: Path, folder: Path) -> None:
    """Trains on 2,000 rows in `folder`: `run`, and `valid.tsv` of 300 other rows."""
    lines = first_lines(shared, 2300)
    (folder / "train.tsv").write_text("".join(lines[:2000]))
    (folder / "valid.tsv").write_text("".join(lines[2000:]))
    (folder / "config.yaml").write_text(CONFIG)
    assert main(["train", str(folder / "config.yaml"), "--run-dir", str(folder / "run")]) == 0


def export(folder: Path, base: Path, name: str, *flags: str) -> None:
    """Exports the run as a model of that name."""
    command = ["export", str(folder / "run"), "--to", str(base), "--name", name]
    assert main([*command, *flags]) == 0


def scores_of(server: Any, folder: Path, tmp_path: Path) -> list[float]:
    """Returns what a server answers for the 300 rows."""
    report = tmp_path / "scores.json"
    arguments = ["--server", f"127.0.0.1:{server.port}", "--model", server.model]
    data = ["--data", str(folder / "valid.tsv"), "--json", str(report)]
    assert main(["predict", *arguments, *data]) == 0
    scores: list[float] = json.loads(report.read_text())["scores"]
    return scores


def offline_scores(place: Path, folder: Path, tmp_path: Path, *flags: str) -> list[float]:
    """Returns what a run or a version answers for the 300 rows, without a server."""
    report = tmp_path / "offline.json"
    data = ["--data", str(folder / "valid.tsv"), "--json", str(report)]
    assert main(["predict", str(place), *data, *flags]) == 0
    scores: list[float] = json.loads(report.read_text())["scores"]
    return scores


def inputs(folder: Path) -> dict[str, np.ndarray]:
    """Returns a row whose keys were trained."""
    fields = (folder / "train.tsv").read_text().split("\n", 1)[0].split("\t")
    row = {f"I{i}": np.array([float(fields[i] or "nan")], np.float32) for i in (1, 2, 3)}
    words = {f"C{i}": np.array([fields[13 + i].encode()], object) for i in (1, 2, 3)}
    return {**row, **words}


def predict(server: Any, folder: Path) -> float:
    """Returns the score of that row."""
    return float(server.predict(**inputs(folder)).outputs["scores"].float_val[0])
