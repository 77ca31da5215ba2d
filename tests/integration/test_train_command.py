"""`platform train` as a real process: what it writes, prints and refuses.

Where a run is only compared with, or comes after one of a process of its own, it is made here: a
process takes seconds to start.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from hotrow.cli.main import main
from hotrow.trainer.trained_run import load_run

CONFIG = {
    "name": "criteo-small",
    "seed": 7,
    "data": {"format": "criteo", "batch_size": 256},
    "features": {
        "dense": {"columns": ["I1", "I2", "I3"], "transform": "log"},
        "sparse": {"columns": ["C1", "C2", "C3"], "dim": 4},
    },
    "model": {"arch": "dlrm", "bottom": [8, 4], "top": [8]},
}


def train(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "hotrow.cli.main", "train", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


@pytest.fixture
def train_here(tmp_path, monkeypatch, capsys):
    """The same in this process, in the test's folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capsys.readouterr()
        code = main(["train", *map(str, arguments)])
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, printed.out, printed.err)

    return run


@pytest.fixture(scope="module")
def criteo(shared, tmp_path_factory):
    """2,000 real rows to train and 500 to validate."""
    directory = tmp_path_factory.mktemp("criteo")
    with gzip.open(shared / "data" / "criteo_head10k" / "criteo_head10k.tsv.gz", "rt") as file:
        lines = [next(file) for _ in range(2500)]
    (directory / "train.tsv").write_text("".join(lines[:2000]))
    with gzip.open(directory / "valid.tsv.gz", "wt") as file:
        file.write("".join(lines[2000:]))
    return directory


@pytest.fixture
def config(criteo, tmp_path):
    def write(**sections):
        values = json.loads(json.dumps(CONFIG | sections))
        values["data"].setdefault("train", str(criteo / "train.tsv"))
        values["data"].setdefault("valid", str(criteo / "valid.tsv.gz"))
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(values))
        return path

    return write


def assert_equal_models(one, other):
    first, second = load_run(one).model, load_run(other).model
    assert {n: t.digest() for n, t in first.tables().items()} == {
        n: t.digest() for n, t in second.tables().items()
    }
    for a, b in zip(first.dense_variables(), second.dense_variables(), strict=True):
        assert (a.numpy() == b.numpy()).all()


def test_a_run_leaves_its_directory_and_a_short_report(config, tmp_path):
    result = train(config(), "--json", "result.json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("criteo-small-")
    assert {"config.yaml", "metrics.jsonl", "events", "checkpoints"} <= {
        path.name for path in run.iterdir()
    }
    metrics = json.loads((tmp_path / "result.json").read_text())
    assert metrics["steps"] == 8
    assert 0 < metrics["valid_logloss"] < 1
    assert "8 steps" in result.stdout
    assert "validation: auc" in result.stdout
    assert str(run.name) in result.stdout
    # progress in plain lines, and nothing of TensorFlow's greetings
    assert all(line.startswith("step ") for line in result.stderr.splitlines()), result.stderr


def test_the_result_as_json_on_standard_output_is_all_that_is_there(config, tmp_path):
    result = train(config(), "--run-dir", tmp_path / "run", "--json", "-")
    assert json.loads(result.stdout)["rows"].keys() == {"C1", "C2", "C3"}


@pytest.mark.slow
def test_resuming_equals_a_run_that_was_never_interrupted(config, tmp_path, train_here):
    path = config()
    begun = train(path, "--run-dir", "parts", "--set", "train.max_steps=3", cwd=tmp_path)
    assert begun.returncode == 0, begun.stderr
    assert train_here(path, "--run-dir", "straight").returncode == 0
    result = train_here(path, "--run-dir", "parts", "--resume")
    assert result.returncode == 0, result.stderr
    assert "resuming parts at step 3" in result.stderr
    assert_equal_models(tmp_path / "straight", tmp_path / "parts")


def test_resume_without_a_directory_takes_the_newest_run_of_the_name(config, tmp_path, train_here):
    path = config()
    missing = train_here(path, "--resume")
    assert missing.returncode == 1
    assert "no run of 'criteo-small' in" in missing.stderr
    train_here(path, "--set", "train.max_steps=2")
    result = train_here(path, "--resume")
    assert "at step 2" in result.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="Ctrl-C", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, id="terminated"),
    ],
)
def test_a_signal_writes_a_checkpoint_from_which_the_run_ends_the_same(
    config, tmp_path, train_here, number, code
):
    path = config(
        train={"epochs": 60, "eval_every_steps": 2},
        checkpoint={"every_steps": 10**6},
        cache={"rows": 600, "prefetch": 3},
    )
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "hotrow.cli.main", "train", path, "--run-dir", run],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (run / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, printed = process.communicate(timeout=120)
    assert process.returncode == code, printed
    assert "checkpoint written; continue with --resume" in printed
    assert "Traceback" not in printed
    stopped = load_run(run).position.step
    assert 0 < stopped < 480
    end = ["--set", f"train.max_steps={stopped + 5}"]
    resumed = train_here(path, "--run-dir", run, "--resume", *end)
    assert resumed.returncode == 0, resumed.stderr
    without = ["--set", "cache.rows="]
    assert train_here(path, "--run-dir", tmp_path / "straight", *without, *end).returncode == 0
    assert_equal_models(run, tmp_path / "straight")


@pytest.mark.slow
def test_a_process_that_was_killed_is_resumed_from_its_last_checkpoint(
    config, tmp_path, train_here
):
    path = config(train={"epochs": 60}, checkpoint={"every_steps": 3, "keep": 2})
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "hotrow.cli.main", "train", path, "--run-dir", run],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not list(run.glob("checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    stopped = load_run(run).position.step
    end = ["--set", f"train.max_steps={stopped + 4}"]
    resumed = train_here(path, "--run-dir", run, "--resume", *end)
    assert resumed.returncode == 0, resumed.stderr
    assert f"at step {stopped}" in resumed.stderr
    assert train_here(path, "--run-dir", tmp_path / "straight", *end).returncode == 0
    assert_equal_models(run, tmp_path / "straight")
    assert not list(run.glob("checkpoints/.unfinished-*"))


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--set", "features.sparse.dim=0"], 2, "features.sparse.dim: 0 is not legal; expected"),
        (["--set", "model.arch=dlmr"], 2, "arch 'dlmr' is not legal (did you mean 'dlrm'?)"),
        (["--set", "tables.default.optimizer=adagrd"], 2, "(did you mean 'adagrad'?)"),
        (["--set", "tables.default.momentum=0.5"], 2, "momentum is no option of adagrad"),
        (["--set", "data.batch_size=many"], 2, "'many' is not legal; expected an integer"),
        (["--set", "model.tpo=[3]"], 2, "unknown key 'tpo' (did you mean 'top'?)"),
        (["--set", "cache.ratio=0.1"], 2, "cache.ratio: 0.1 is a share of a table's"),
        (["--set", "cache.row=5"], 2, "unknown key 'row' (did you mean 'rows"),
        (["--set", "online.models=m"], 2, "models without store: publishing needs both"),
        (["--online"], 2, "--online: online.source is not set"),
        (["--set", "data.train=none.tsv"], 1, "data.train: no such file: "),
        (["--set", "data.valid=none.tsv"], 1, "data.valid: no such file: "),
        (["--set", "data.format=libsvm"], 2, "a LibSVM file is one sparse column of ids"),
        (["--json", "none/x.json"], 2, "--json none/x.json: no such directory: none"),
        (["--run-dir", "x", "--resume"], 1, "no run in x: it has no config.yaml"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    config, tmp_path, train_here, arguments, code, line
):
    result = train_here(config(), *arguments)
    assert result.returncode == code
    assert line in result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert not (tmp_path / "runs").exists()


def test_the_example_of_the_design_trains_without_the_parts_that_are_not_built(
    criteo, tmp_path, train_here
):
    text = f"""
name: criteo-dlrm
seed: 2026
data:
  {{format: criteo, train: {criteo}/train.tsv, valid: {criteo}/valid.tsv.gz, batch_size: 4096}}
features:
  dense:  {{columns: [I1, I2], transform: log}}
  sparse: {{columns: [C1, C2], dim: 16, hash: true}}
tables:   {{default: {{optimizer: adagrad, learning_rate: 0.05, initializer: {{uniform: 0.05}}}}}}
model:    {{arch: dlrm, bottom: [128, 64, 16], top: [256, 128]}}
optimizer: {{name: adam, learning_rate: 0.001}}
cache:    {{rows: 1_000_000, policy: lfu, prefetch: 8, warmup: 0.7}}
checkpoint: {{every_steps: 5000, keep: 3}}
"""
    online = 'online:   {source: "redis://...", publish_seconds: 1}\n'
    (tmp_path / "c.yaml").write_text(text + online)
    result = train_here("c.yaml")
    assert result.returncode == 0, result.stderr
    assert "cache of 1,000,448 with hit rate" in result.stdout
    (tmp_path / "files.yaml").write_text(text)
    before = dict(os.environ)
    refused = train_here("files.yaml", "--online")
    assert refused.returncode == 2
    assert "--online: online.source is not set" in refused.stderr
    assert dict(os.environ) == before


def test_a_used_run_directory_is_refused_and_stays_as_it_was(config, tmp_path, train_here):
    path, run = config(), tmp_path / "run"
    assert train_here(path, "--run-dir", run, "--set", "train.max_steps=1").returncode == 0
    before = (run / "config.yaml").read_text()
    result = train_here(path, "--run-dir", run)
    assert result.returncode == 1
    assert "holds a run already; add --resume" in result.stderr
    changed = train_here(path, "--run-dir", run, "--resume", "--set", "seed=8")
    assert changed.returncode == 2
    assert "seed: the run in" in changed.stderr
    assert (run / "config.yaml").read_text() == before


def test_a_file_that_cannot_be_read_as_its_format_is_one_line(config, tmp_path, train_here):
    broken = tmp_path / "broken.tsv"
    for text, run in (("", train), ("1\t2\n", train_here), ("a,b\n", train_here)):
        broken.write_text(text)
        result = run(config(), "--set", f"data.train={broken}", "--run-dir", tmp_path / "run")
        assert result.returncode == 1
        assert str(broken) in result.stderr
        assert len(result.stderr.splitlines()) == 1, result.stderr
