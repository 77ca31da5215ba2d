"""A small trained run and its export, for tests of what users do wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hotrow.cli.main import main

CONFIG = """\
name: small
data: {format: criteo, train: train.tsv, valid: train.valid.tsv, batch_size: 256}
features:
  dense:  {columns: [I1, I2], transform: log}
  sparse: {columns: [C1, C2], dim: 4, hash: true}
tables:   {default: {optimizer: adagrad}}
model:    {arch: dlrm, bottom: [8, 4], top: [8]}
optimizer: {name: adam}
"""


def make_run(folder: Path) -> Path:
    """Writes data, a configuration, a trained run `run` and its export `models/m/1`."""
    rows = ["--rows", "1000", "--valid-rows", "100", "--keys", "100"]
    assert main(["data", "generate", str(folder / "train.tsv"), *rows]) == 0
    (folder / "small.yaml").write_text(CONFIG)
    assert main(["train", str(folder / "small.yaml"), "--run-dir", str(folder / "run")]) == 0
    export = ["--to", str(folder / "models"), "--name", "m"]
    assert main(["export", str(folder / "run"), *export]) == 0
    return folder


def platform(*arguments: Any, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "hotrow.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=120,
    )


def one_error(text: str) -> str:
    """Returns the only line of standard error, without the `Error: ` that it begins with."""
    (line,) = text.splitlines()
    assert line.startswith("Error: "), line
    assert "Traceback" not in line
    return line.removeprefix("Error: ")


def write_malformed(run: Path, folder: Path) -> Path:
    """Writes the training rows of a run with three bad lines; the first is line 301."""
    lines = (run / "train.tsv").read_text().splitlines()
    lines[300] = lines[300].replace("\t", " ")
    lines[500] = "2" + lines[500][1:]
    lines[700] += "\tmore"
    path = folder / "malformed.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path
