"""`platform inspect` of what `platform train` wrote, against the tables of the restored model."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from hotrow.cli.main import main
from hotrow.trainer.trained_run import load_run

CONFIG = """\
name: small
data: {format: criteo, train: train.tsv, batch_size: 64}
features:
  dense: {columns: [I1, I2], transform: log}
  sparse:
    - {columns: [C9], dim: 4, table: first}
    - {columns: [C15, C1], dim: 8, table: shared}
tables:
  first: {optimizer: adagrad}
  shared: {optimizer: adam, dtype: bfloat16, admission: {occurrences: 2}}
model: {arch: wide_deep, hidden: [8]}
checkpoint: {every_steps: 10, keep: 9, full_every: 3, asynchronous: false}
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with a configuration, its data, and a run of 3,000 rows: 47 steps."""
    folder = tmp_path_factory.mktemp("inspect")
    assert main(["data", "generate", str(folder / "train.tsv"), "--rows", "3000"]) == 0
    (folder / "small.yaml").write_text(CONFIG)
    assert main(["train", str(folder / "small.yaml"), "--run-dir", str(folder / "run")]) == 0
    return folder


def inspect(capsys, *arguments):
    capsys.readouterr()
    assert main(["inspect", *map(str, arguments), "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return json.loads(printed.out)


def share_of_top(counts, percent):
    top = -(-len(counts) * percent // 100)
    return np.sort(counts)[::-1][:top].sum() / counts.sum()


def test_the_metrics_of_an_increment_are_those_of_the_restored_tables(work, capsys):
    values = inspect(capsys, work / "run")
    assert values["checkpoint"] == "step-00000047"
    assert values["checkpoint_kind"] == "increment"
    assert values["parents"]
    model = load_run(work / "run").model
    assert [table["name"] for table in values["tables"]] == list(model.tables())
    for found, table in zip(values["tables"], model.tables().values(), strict=True):
        rows = list(table.export_batches())
        weights = np.concatenate([part.weights for part in rows]).astype(np.float64)
        clocks = np.concatenate([part.clocks for part in rows]).astype(np.int64)
        counts = np.concatenate([part.counts for part in rows]).astype(np.int64)
        norms, ages = np.linalg.norm(weights, axis=1), table.step - clocks
        assert found["rows"] == table.size == len(clocks)
        assert found["step"] == table.step == 47
        assert found["line_bytes"] == table.line_bytes
        assert found["digest"] == table.digest()
        assert found["lookups"] == counts.sum()
        assert found["skew"]["top_1_percent"] == share_of_top(counts, 1)
        assert found["skew"]["top_10_percent"] == share_of_top(counts, 10)
        assert found["never_updated"] == (counts == 0).sum()
        assert found["age"]["mean"] == pytest.approx(ages.mean())
        assert found["norm"]["mean"] == pytest.approx(norms.mean())
        assert found["norm"]["max"] == pytest.approx(norms.max())
        for histogram, of in (
            (found["age"]["histogram"], ages),
            (found["lookups_a_row"]["histogram"], counts),
        ):
            assert sum(b["rows"] for b in histogram) == len(of)
            for b in histogram:
                assert b["rows"] == ((b["low"] <= of) & (of < b["high"])).sum()
        assert sum(b["rows"] for b in found["norm"]["histogram"]) == len(norms)
    types = {t["name"]: (t["weights_type"], t["state_vectors"]) for t in values["tables"]}
    assert types["first"] == ("float32", 1)
    assert types["shared"] == ("bfloat16", 2)


def test_each_checkpoint_of_a_run_can_be_inspected(work, capsys):
    rows = []
    for path in sorted((work / "run" / "checkpoints").iterdir()):
        values = inspect(capsys, path)
        assert values["step"] == int(path.name.removeprefix("step-"))
        rows.append(sum(table["rows"] for table in values["tables"]))
    assert len(rows) == 5
    assert rows == sorted(rows)
    assert rows[0] < rows[-1]


def test_the_text_shows_every_table_and_its_histograms(work, capsys):
    assert main(["inspect", str(work / "run"), "--histograms"]) == 0
    text = capsys.readouterr().out
    for name in ("first", "shared"):
        assert f"\n{name} " in text
        assert f"\ntable {name}\n" in text
    assert text.count("ages: steps since a row's last update") == text.count("\ntable ") - 1


@pytest.mark.slow
def test_a_run_may_be_inspected_while_it_trains(work, tmp_path):
    run = tmp_path / "run"
    options = ["--set", "train.epochs=1000"]
    options += ["--set", "checkpoint.every_steps=2", "--set", "checkpoint.keep=2"]
    command = [sys.executable, "-m", "hotrow.cli.main"]
    training = subprocess.Popen(
        [*command, "train", work / "small.yaml", "--run-dir", run, *options],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not list(run.glob("checkpoints/step-*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        steps = []
        for _ in range(3):
            done = subprocess.run(
                [*command, "inspect", run, "--json", "-"],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            values = json.loads(done.stdout)
            assert values["damaged_checkpoints"] == []
            steps.append(values["step"])
        assert steps == sorted(steps)
    finally:
        training.send_signal(signal.SIGKILL)
        training.wait()
