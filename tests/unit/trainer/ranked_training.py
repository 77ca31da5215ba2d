"""Training on ranks that are threads of this process, for the tests of ranks."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from criteo_files import write_criteo

from hotrow.config import parse_config
from hotrow.ops.ranks import thread_ranks
from hotrow.trainer.checkpoint import CheckpointDirectory
from hotrow.trainer.checkpoint.array_file import read_arrays
from hotrow.trainer.checkpoint.rows import CheckpointRows
from hotrow.trainer.loop import train
from hotrow.trainer.run_directory import read_metrics

ROWS = 330


BATCH = 32


SHARDINGS = ("row", "column", "row_broadcast", "table", "replicated")


COLUMNS = ("C1", "C2", "C3", "C4", "C5")


# Shardings by table; `parallel.sharding` says the others.
MIXES = {
    "mixed": dict(zip(COLUMNS, SHARDINGS, strict=True)),
    "mixed otherwise": dict(zip(COLUMNS, (*SHARDINGS[1:], SHARDINGS[0]), strict=True)),
}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def config_of(files, workers=1, sharding=None, **sections):
    """Returns a configuration; sharding: a key of `MIXES`, or that of all tables."""
    values = {
        "name": "m",
        "seed": 5,
        "data": {
            "format": "criteo",
            "train": str(files / "train.tsv"),
            "valid": str(files / "valid.tsv"),
            "batch_size": BATCH,
        },
        "features": {
            "dense": {"columns": ["I1", "I2"], "transform": "log", "standardize": True},
            "sparse": {"columns": list(COLUMNS), "dim": 5},
        },
        "model": {"arch": "dlrm", "bottom": [8, 5], "top": [8], "dropout": 0.2, "l2": 0.01},
        "optimizer": {"name": "adam", "learning_rate": 0.01, "global_clipnorm": 0.5},
        "tables": {"default": {"learning_rate": 0.1}},
        "train": {"epochs": 2, "shuffle_buffer": 100, "eval_every_steps": 4},
        "checkpoint": {"every_steps": 5},
    }
    parallel = {"workers": workers, "timeout_seconds": 60.0, **sections.pop("parallel", {})}
    if sharding is not None and sharding not in MIXES:
        parallel["sharding"] = sharding
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section}
    for column, own in MIXES.get(sharding, {}).items():
        values["tables"][column] = {"sharding": own}
    return parse_config({**values, "parallel": parallel})


def train_on(ranks, config, run_dir, resume=False):
    """Trains on ranks that are threads; returns the result of each, or what it raised."""
    if ranks == 1:
        return [train(config, run_dir, resume)]
    results = [None] * ranks

    def run(rank):
        try:
            with rank:
                results[rank.rank] = train(config, run_dir, resume, rank)
        except BaseException as err:
            results[rank.rank] = err

    threads = [threading.Thread(target=run, args=(rank,)) for rank in thread_ranks(ranks, 60.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def losses(run_dir, kind="train"):
    return {r["step"]: r["logloss"] for r in read_metrics(run_dir) if r["kind"] == kind}


def newest(run_dir):
    directory = CheckpointDirectory(run_dir / "checkpoints", 1)
    return directory.of_step(directory.steps()[-1])


def rows_of(run_dir):
    """Returns lines by key of each table, and clocks and counts."""
    rows = CheckpointRows(newest(run_dir))
    found = {}
    for name in rows.tables():
        layout = rows.layout(name)
        for piece in rows.read(name, lambda _: None):
            for key, weights, clock, count in zip(
                piece.keys, layout.weights(piece.lines), piece.clocks, piece.counts, strict=True
            ):
                found[name, int(key)] = (weights.copy(), int(clock), int(count))
    return found


def assert_same_model(one, other, rtol=2e-5):
    left, right = rows_of(one), rows_of(other)
    assert left.keys() == right.keys()
    for key, (weights, clock, count) in left.items():
        assert (clock, count) == right[key][1:], key
        np.testing.assert_allclose(weights, right[key][0], rtol=rtol, atol=1e-6)
    mine, theirs = (read_arrays(newest(run) / "model.safetensors") for run in (one, other))
    assert mine.keys() == theirs.keys()
    for name, values in mine.items():
        np.testing.assert_allclose(values, theirs[name], rtol=rtol, atol=1e-6, err_msg=name)


def assert_same_losses(one, other, rtol=1e-6):
    valid = losses(one, "valid")
    assert valid.keys() == losses(other, "valid").keys()
    for kind in ("train", "valid"):
        left, right = losses(one, kind), losses(other, kind)
        # Training is reported at each validation, and by the clock in between.
        common = sorted(left.keys() & right.keys())
        assert set(valid) <= set(common)
        np.testing.assert_allclose(
            [left[step] for step in common], [right[step] for step in common], rtol=rtol
        )


def write_files(folder):
    """Writes data to train and to evaluate on; returns the folder."""
    write_criteo(folder / "train.tsv", ROWS, 0, values=40)
    write_criteo(folder / "valid.tsv", 70, 1, values=40)
    return folder
