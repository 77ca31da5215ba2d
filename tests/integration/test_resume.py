"""Runs that are killed again and again end like runs that were left alone, bit for bit."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from integration.killing import TrainingProcesses, kill_at_a_random_moment

from hotrow.trainer.checkpoint import CheckpointDirectory
from hotrow.trainer.checkpoint.array_file import read_arrays
from hotrow.trainer.checkpoint.table_files import read_removed, read_rows

ROWS, VALID_ROWS, BATCH, EPOCHS = 900, 120, 16, 10
STEPS = EPOCHS * -(-ROWS // BATCH)
READERS = ("criteo", "csv", "libsvm", "parquet")
EXPIRY = {"after_steps": 40, "sweep_steps": 10}
TABLES = {
    "criteo": {"optimizer": "adagrad", "learning_rate": 0.1},
    "csv": {"optimizer": "adam", "dtype": "bfloat16", "bias_correction": "global"},
    "libsvm": {"optimizer": "ftrl", "expiry": EXPIRY, "admission": {"occurrences": 2}},
    "parquet": {
        "optimizer": "rowwise_adagrad",
        "dtype": "float16",
        "expiry": EXPIRY,
        "admission": {"occurrences": 2, "filter": "bloom", "expected_keys": 200},
    },
}


def criteo_lines(rows, chance):
    for _ in range(rows):
        label = int(chance.random() < 0.4)
        numbers = [chance.choice(["", str(chance.randint(0, 50))]) for _ in range(13)]
        texts = [f"{chance.randint(0, 60) + 30 * label:08x}" for _ in range(26)]
        yield "\t".join([str(label), *numbers, *texts])


def csv_lines(rows, chance):
    yield "label,age,city,tags,weight"
    for _ in range(rows):
        label = int(chance.random() < 0.4)
        tags = "|".join(str(chance.randint(0, 300)) for _ in range(chance.randint(0, 4)))
        age, city = chance.choice(["", chance.randint(1, 90)]), chance.randint(0, 99)
        yield f"{label},{age},c{city},{tags},{chance.randint(0, 4) / 2}"


def libsvm_lines(rows, chance):
    for _ in range(rows):
        ids = [f"{chance.randint(0, 400)}:{chance.random():.3f}" for _ in range(9)]
        yield f"{int(chance.random() < 0.4)} {' '.join(ids)}"


FORMATS = {
    "criteo": (
        criteo_lines,
        {"format": "criteo"},
        {
            "dense": {"columns": ["I1", "I2"], "transform": "log", "standardize": True},
            "sparse": {"columns": ["C1", "C2", "C3"], "dim": 4},
        },
    ),
    "csv": (
        csv_lines,
        {"format": "csv", "weight": "weight"},
        {
            "dense": {"columns": ["age"], "standardize": True},
            "sparse": [
                {"columns": ["city"], "dim": 4},
                {"columns": ["tags"], "dim": 4, "separator": "|", "combiner": "mean"},
            ],
        },
    ),
    "libsvm": (
        libsvm_lines,
        {"format": "libsvm", "weights": True},
        {"sparse": {"columns": ["ids"], "dim": 4}},
    ),
}


def write_data(folder, reader):
    """Writes train and valid files and returns the sections data and features."""
    lines, data, features = FORMATS["csv" if reader == "parquet" else reader]
    for number, (part, rows) in enumerate({"train": ROWS, "valid": VALID_ROWS}.items()):
        chance = random.Random(number)
        path = folder / f"{part}.txt"
        path.write_text("\n".join(lines(rows, chance)) + "\n")
        if reader == "parquet":
            names, *values = (line.split(",") for line in path.read_text().splitlines())
            columns = dict(zip(names, map(list, zip(*values, strict=True)), strict=True))
            columns["label"] = [int(value) for value in columns["label"]]
            columns["age"] = [float(value) if value else None for value in columns["age"]]
            path = folder / f"{part}.parquet"
            pq.write_table(pa.table(columns), path, row_group_size=100)
        data = {**data, part: str(path)}
    return {"data": data | {"batch_size": BATCH}, "features": features}


@pytest.fixture(scope="module")
def processes():
    with contextlib.closing(TrainingProcesses()) as parent:
        yield parent


@pytest.fixture(scope="module")
def straight(processes, tmp_path_factory):
    """Returns a function from a reader to (configuration file, undisturbed run)."""
    made = {}

    def make(reader):
        if reader not in made:
            folder = tmp_path_factory.mktemp(reader)
            config = {
                "name": "m",
                "seed": 11,
                **write_data(folder, reader),
                "model": {
                    "arch": "wide_deep",
                    "hidden": [8],
                    "dropout": 0.2,
                    "batch_norm": True,
                },
                "tables": {"default": TABLES[reader]},
                "train": {"epochs": EPOCHS, "eval_every_steps": 50, "shuffle_buffer": 300},
                "checkpoint": {"every_steps": 7, "keep": 2, "full_every": 3, "best": "logloss"},
            }
            (folder / "config.yaml").write_text(yaml.safe_dump(config))
            arguments = ["train", folder / "config.yaml", "--run-dir", folder / "straight"]
            code = processes.start(arguments, folder / "log").wait()
            assert code == 0, (folder / "log").read_text()
            made[reader] = folder
        return made[reader] / "config.yaml", made[reader] / "straight"

    return make


def contents(run: Path):
    """Returns (tables, arrays) of a run's last checkpoint, all as numpy arrays and bytes."""
    chain = CheckpointDirectory(run / "checkpoints", 1).newest(report=pytest.fail)
    newest = chain[-1]
    assert newest.facts["position"]["step"] == STEPS
    tables = {}
    for name, entry in newest.facts["tables"].items():
        rows = {}
        for checkpoint in chain:
            part = checkpoint.table(name)
            folder = checkpoint.path / "tables"
            if part["removed"]:
                for key in read_removed(folder / part["removed"]).tolist():
                    rows.pop(key, None)  # may have come and gone in between
            for file in part["files"]:
                piece = read_rows(folder / file, entry["layout"]["line_bytes"])
                for row in zip(*vars(piece).values(), strict=True):
                    rows[int(row[0])] = tuple(value.tobytes() for value in row)
        assert len(rows) == entry["size"]
        state = (newest.path / "tables" / entry["state"]).read_bytes()
        metrics = {k: v for k, v in entry["statistics"].items() if k != "bytes"}
        tables[name] = (rows, state, entry["digest"], entry["step"], metrics)
    files = ("model", "optimizer", "metrics")
    return tables, {name: read_arrays(newest.path / f"{name}.safetensors") for name in files}


def measurements(run: Path):
    """Returns what metrics.jsonl says, without what depends on the clock."""
    found = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] != "checkpoint":
            key = (record["kind"], record["step"])
            assert key not in found, f"{key} is there twice"
            found[key] = {
                k: v for k, v in record.items() if k not in ("time", "samples_per_second")
            }
    return found


def assert_equal_runs(run, straight):
    (tables, arrays), (expected_tables, expected_arrays) = contents(run), contents(straight)
    assert tables == expected_tables
    for name, values in arrays.items():
        assert values.keys() == expected_arrays[name].keys()
        for key, value in values.items():
            np.testing.assert_array_equal(value, expected_arrays[name][key])
    best = Path("checkpoints", "best.json")
    assert json.loads((run / best).read_text()) == json.loads((straight / best).read_text())
    found, expected = measurements(run), measurements(straight)
    timed = {key for key in found.keys() ^ expected.keys() if key[0] in ("train", "tables")}
    assert {k: v for k, v in found.items() if k not in timed} == {
        k: v for k, v in expected.items() if k not in timed
    }


def kill_and_resume(processes, straight, run, seed, kills):
    chance = random.Random(seed)
    config, uninterrupted = straight(READERS[seed % len(READERS)])
    log, checkpoints = run.with_suffix(".log"), run / "checkpoints"
    again = []
    for _ in range(kills):
        child = processes.start(["train", config, "--run-dir", run, *again], log)
        moment = kill_at_a_random_moment(child, checkpoints, chance)
        code = child.wait()
        print(f"seed {seed}: killed {moment}, exit code {code}")
        assert code in (0, -9), log.read_text()
        again = ["--resume"] if (run / "config.yaml").exists() else []
    code = processes.start(["train", config, "--run-dir", run, *again], log).wait()
    assert code == 0, log.read_text()
    assert "not usable" not in log.read_text()
    assert not list(checkpoints.glob(".unfinished-*"))
    assert_equal_runs(run, uninterrupted)


@pytest.mark.parametrize(
    "seed", [*(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4)), 4]
)
def test_a_run_killed_at_random_moments_ends_as_if_nothing_had_happened(
    processes, straight, tmp_path, seed
):
    kill_and_resume(processes, straight, tmp_path / "run", seed, kills=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150))
def test_fifty_runs_killed_at_random_moments_end_as_if_nothing_had_happened(
    processes, straight, tmp_path, seed
):
    kill_and_resume(processes, straight, tmp_path / "run", seed, kills=4)
