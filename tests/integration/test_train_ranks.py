"""`platform train` on several ranks as real processes: equality, resumption, deaths, errors.

Each process imports TensorFlow for seconds, so each run is used for many checks.
tests/unit/trainer/test_ranked_training.py and ops/native/tests/rank_step_test.cc show that ranks
train what one process trains, in every way.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import time

import numpy as np
import pytest
import yaml
from integration.ranked_runs import (
    MPIEXEC,
    assert_same_losses,
    assert_same_model,
    newest,
    platform,
    processes_of,
    ranks_of,
    start,
    wait_for_checkpoint,
    wait_until_gone,
)

from hotrow.cli.main import main
from hotrow.config import load_config
from hotrow.trainer.loop import train

DLRM = {
    "features": {
        "dense": {"columns": ["I1", "I2", "I3"], "transform": "log", "standardize": True},
        "sparse": {"columns": ["C1", "C2", "C3", "C4", "C5"], "dim": 8},
    },
    "model": {"arch": "dlrm", "bottom": [16, 8], "top": [16], "dropout": 0.1},
}
WIDE_DEEP = {
    "features": {
        "dense": {"columns": ["I1", "I2"], "transform": "log"},
        "sparse": {"columns": ["C1", "C2", "C3", "C9"], "dim": 6},
    },
    "model": {"arch": "wide_deep", "hidden": [16, 8], "l2": 0.001},
    "tables": {
        "default": {"optimizer": "adam"},
        "wide": {"optimizer": "ftrl"},
        "C1": {"sharding": "column"},
        "C2": {"sharding": "row_broadcast"},
        "C3": {"sharding": "table"},
        "C9": {"sharding": "replicated"},
    },
}


@pytest.fixture(scope="module")
def folder(shared, tmp_path_factory):
    """8,000 real rows to train, 2,000 to validate, and rows with any number of ids."""
    folder = tmp_path_factory.mktemp("ranks")
    with gzip.open(shared / "data" / "criteo_head10k" / "criteo_head10k.tsv.gz", "rt") as file:
        lines = list(file)
    (folder / "train.tsv").write_text("".join(lines[:8000]))
    (folder / "valid.tsv").write_text("".join(lines[8000:]))
    draw = np.random.default_rng(1)
    with (folder / "ids.libsvm").open("w") as file:
        for _ in range(3000):
            ids = draw.zipf(1.3, draw.integers(0, 9)) % 5000
            label = int(draw.random() < 0.3 + 0.4 * (ids[:1].sum() % 2))
            file.write(f"{label} {' '.join(f'{i}:{draw.random():.2f}' for i in set(ids))}\n")
    return folder


@pytest.fixture(scope="module")
def config(folder):
    """Writes a configuration and returns its path."""

    def write(name, **sections):
        values = {
            "name": name,
            "seed": 3,
            "data": {
                "format": "criteo",
                "train": str(folder / "train.tsv"),
                "valid": str(folder / "valid.tsv"),
                "batch_size": 500,
            },
            "optimizer": {"name": "adam", "learning_rate": 0.01},
            "train": {"shuffle_buffer": 3000, "eval_every_steps": 4},
            "checkpoint": {"every_steps": 8},
            "parallel": {"timeout_seconds": 60.0},
            **sections,
        }
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(values))
        return path

    return write


@pytest.fixture(scope="module")
def dlrm(folder, config):
    """A run of one process."""
    path = config("dlrm", **DLRM)
    train(load_config(path), folder / "dlrm-1")
    return path, folder / "dlrm-1"


def test_ranks_of_mpiexec_and_workers_train_resume_and_export_what_one_process_does(folder, dlrm):
    path, alone = dlrm
    run = folder / "dlrm-2"
    stopped = platform("train", path, "--run-dir", run, "--set", "train.max_steps=8",
                       before=(MPIEXEC, "-n", "2"))  # fmt: skip
    assert stopped.returncode == 0, stopped.stderr
    assert stopped.stdout.count("8 steps") == 1
    assert stopped.stdout.count("2 ranks") == 1
    manifest = json.loads((newest(run) / "manifest.json").read_text())
    assert (manifest["format"], manifest["environment"]["ranks"]) == (3, 2)
    resumed = platform("train", path, "--run-dir", run, "--workers", 3, "--resume", "--json",
                       folder / "result.json")  # fmt: skip
    assert resumed.returncode == 0, resumed.stderr
    assert "BAD TERMINATION" not in resumed.stdout + resumed.stderr
    assert resumed.stderr.count(f"resuming {run} at step 8") == 1
    result = json.loads((folder / "result.json").read_text())
    assert (result["steps"], result["ranks"]) == (16, 3)
    assert any(stage["bytes"] > 0 for stage in result["stages"].values())
    assert_same_losses(run, alone)
    assert_same_model(run, alone)

    assert main(["inspect", str(run), "--json", str(folder / "inspected.json")]) == 0
    inspected = json.loads((folder / "inspected.json").read_text())
    tables = {table["name"]: table["rows"] for table in inspected["tables"]}
    assert tables == result["rows"]

    scores = []
    for name, trained in (("one", alone), ("ranks", run)):
        to = ["--to", str(folder / f"export-{name}"), "--name", "m", "--standalone"]
        assert main(["export", str(trained), *to]) == 0
        scores.append(folder / f"export-{name}")
    assert_same_exports(*scores)


def assert_same_exports(one, other):
    import tensorflow as tf

    answers = []
    for base in (one, other):
        (version,) = base.rglob("saved_model.pb")
        model = tf.saved_model.load(str(version.parent))
        signature = model.signatures["serving_default"]
        inputs = {}
        for name, spec in signature.structured_input_signature[1].items():
            values = [b"68fd1e64", b"05db9164", b"unknown"]
            dtype = spec.dtype
            inputs[name] = tf.constant(
                values if dtype == tf.string else [1, 2, 3],
                dtype,
                shape=[3] if len(spec.shape) == 1 else [3, 1],
            )
        answers.append({k: v.numpy() for k, v in signature(**inputs).items()})
    assert answers[0].keys() == answers[1].keys()
    for name, values in answers[0].items():
        np.testing.assert_allclose(values, answers[1][name], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_under_mpiexec_train_a_model_whose_tables_are_split_in_all_ways(
    folder, config, ranks
):
    path = config("wide", **WIDE_DEEP)
    alone, run = folder / "wide-1", folder / f"wide-{ranks}"
    if not alone.exists():
        train(load_config(path), alone)
    done = platform("train", path, "--run-dir", run, before=(MPIEXEC, "-n", str(ranks)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("16 steps") == 1
    assert done.stdout.count(f"{ranks} ranks") == 1
    assert_same_losses(run, alone)
    assert_same_model(run, alone)


@pytest.mark.slow  # also in test_rank_equality
@pytest.mark.parametrize("ranks", [2, 3])
def test_rows_with_any_number_of_weighted_ids(folder, config, ranks):
    path = config(
        "ids",
        data={
            "format": "libsvm",
            "train": str(folder / "ids.libsvm"),
            "valid": str(folder / "ids.libsvm"),
            "batch_size": 128,
            "weights": True,
        },
        features={"sparse": {"columns": ["ids"], "dim": 4, "hash": False, "combiner": "sqrtn"}},
        model={"arch": "wide_deep", "hidden": [8]},
    )
    alone, run = folder / "ids-1", folder / f"ids-{ranks}"
    if not alone.exists():
        train(load_config(path), alone)
    done = platform("train", path, "--run-dir", run, "--workers", ranks)
    assert done.returncode == 0, done.stderr
    assert_same_losses(run, alone)
    assert_same_model(run, alone)


@pytest.fixture
def endless(config):
    """A configuration of a run that goes on until something ends it."""
    return config("endless", **DLRM, train={"epochs": 10_000}, checkpoint={"every_steps": 10})


def test_a_rank_that_is_killed_ends_the_run_with_one_line(folder, endless):
    run = folder / "killed"
    process = start("train", endless, "--run-dir", run, "--workers", 2)
    wait_for_checkpoint(run, process)
    os.kill(ranks_of(run, 2)[1], signal.SIGKILL)
    begin = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - begin < 10
    assert process.returncode == 1
    (line,) = [line for line in (out + err).splitlines() if "Error" in line]
    step = newest(run).name.removeprefix("step-").lstrip("0")
    assert line == (
        "Error: rank 1 was killed by signal 9 (SIGKILL), so all ranks ended; the newest checkpoint "
        f"is of step {step}; continue with --resume --run-dir {run}"
    )
    assert "BAD TERMINATION" not in out + err
    wait_until_gone(run, 10)


def test_nothing_stays_when_the_command_is_killed(folder, endless):
    run = folder / "orphans"
    process = start("train", endless, "--run-dir", run, "--workers", 2)
    wait_for_checkpoint(run, process)
    assert len(processes_of(run)) >= 3
    process.kill()
    process.communicate()
    wait_until_gone(run, 10)


@pytest.mark.parametrize("to", ["the command", pytest.param("a rank", marks=pytest.mark.slow)])
def test_a_signal_ends_all_ranks_after_a_checkpoint(folder, endless, to):
    run = folder / f"stopped-{to.split()[1]}"
    process = start("train", endless, "--run-dir", run, "--workers", 2)
    wait_for_checkpoint(run, process)
    if to == "the command":
        process.send_signal(signal.SIGTERM)
    else:
        os.kill(ranks_of(run, 2)[1], signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    step = int(newest(run).name.removeprefix("step-"))
    assert err.count("stopped at step") == 1
    assert f"stopped at step {step}, checkpoint written" in err
    assert "Error" not in out + err
    assert "BAD TERMINATION" not in out + err
    wait_until_gone(run, 10)


def test_an_error_of_one_rank_is_reported_once(folder, config):
    # The second half of a batch, so that rank 1 meets it.
    lines = [f"{i % 2} {'5000' if i == 190 else i % 7}:1" for i in range(256)]
    (folder / "large.libsvm").write_text("\n".join(lines) + "\n")
    path = config(
        "large",
        data={"format": "libsvm", "train": str(folder / "large.libsvm"), "batch_size": 64},
        features={"sparse": {"columns": ["ids"], "dim": 4, "hash": False}},
        tables={"default": {"vocabulary_size": 100}},
        model={"arch": "wide_deep", "hidden": [4]},
        train={"shuffle": False},
    )
    run = folder / "large"
    done = platform("train", path, "--run-dir", run, "--workers", 2)
    assert done.returncode == 2
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "Error" in line]
    assert line.startswith("Error: step 3: ")
    assert "rank 1: " in line
    assert "5000" in line
    wait_until_gone(run, 10)


@pytest.mark.slow  # also in test_ranked_training
def test_malformed_rows_are_reported_once(folder, config):
    text = (folder / "train.tsv").read_text().splitlines()
    text[4000] = "broken"
    (folder / "broken.tsv").write_text("\n".join(text))
    data = {"format": "criteo", "train": str(folder / "broken.tsv"), "batch_size": 500}
    done = platform("train", config("broken", **DLRM, data=data), "--run-dir", folder / "broken",
                    "--workers", 2)  # fmt: skip
    assert done.returncode == 1
    lines = (done.stdout + done.stderr).splitlines()
    (line,) = [line for line in lines if "Error" in line]
    assert line.startswith(f"Error: {folder}/broken.tsv: line 4001: ")


def test_numbers_of_ranks_that_contradict_each_other_are_refused(folder, dlrm):
    path, _ = dlrm
    done = platform("train", path, "--run-dir", folder / "none", "--workers", 3,
                    before=(MPIEXEC, "-n", "2"))  # fmt: skip
    assert done.returncode == 2
    assert "parallel.workers is 3, but MPI started 2 ranks" in done.stderr
    assert not (folder / "none").exists()


@pytest.mark.slow
def test_ranks_that_cannot_start_say_why_in_one_line(folder, config, tmp_path, monkeypatch):
    (tmp_path / "mpi4py.py").write_text('raise ImportError("no MPI here")\n')
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), path))))
    done = platform("train", config("unstarted", **DLRM), "--run-dir", folder / "unstarted",
                    "--workers", 2)  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "Error: this process was started by MPI, and MPI does not load: no MPI here; "
        "pip install mpi4py mpich\n"
    )
