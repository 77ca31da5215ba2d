"""`platform train` on several ranks whose tables have their caches on a GPU, emulated.

Ranks are processes that share the emulator's GPU, so keys, rows and gradients go by way of the
host's memory.
"""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np
import pytest
import yaml
from emulated_package import lay_out_emulated
from integration.ranked_runs import PLATFORM, assert_same_losses, assert_same_model

KEYS = 3000


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    return lay_out_emulated(tmp_path_factory.mktemp("emulated"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A configuration, its data, and a run of ranks whose tables are in RAM."""
    folder = tmp_path_factory.mktemp("runs")
    draw = np.random.default_rng(5)
    keys = (KEYS * draw.random((360, 3)) ** 3).astype(np.int64)
    labels = draw.integers(0, 2, 360)
    lines = [",".join(map(str, (label, *row))) for label, row in zip(labels, keys, strict=True)]
    (folder / "train.csv").write_text("\n".join(["label,a,b,c", *lines]) + "\n")
    (folder / "run.yaml").write_text(yaml.safe_dump(values(folder)))
    done = platform("train", folder / "run.yaml", "--run-dir", folder / "ram", "--workers", 2)
    assert done.returncode == 0, done.stderr
    return folder


def values(folder):
    return {
        "name": "small",
        "seed": 5,
        "data": {
            "format": "csv",
            "train": str(folder / "train.csv"),
            "valid": str(folder / "train.csv"),
            "batch_size": 60,
        },
        "features": {"sparse": {"columns": ["a", "b", "c"], "dim": 4, "hash": False}},
        "tables": {
            "default": {"optimizer": "adam", "sharding": "row"},
            "b": {"sharding": "table"},
        },
        "model": {"arch": "wide_deep", "hidden": [8]},
        "train": {"eval_every_steps": 2},
        "checkpoint": {"every_steps": 3},
        "parallel": {"timeout_seconds": 60.0},
    }


def platform(*arguments, package=None):
    """Runs `platform ARGUMENTS`; package: the emulated one."""
    environment = dict(os.environ)
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    return subprocess.run(
        [*PLATFORM, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        stdin=subprocess.DEVNULL,
        env=environment,
    )


def keys_to_rows(result):
    """Returns how often keys were exchanged for each exchange of rows, from the JSON of a run."""
    stages = json.loads(result.read_text())["stages"]
    return stages["keys"]["calls"] / stages["rows"]["calls"]


ON_GPU = ("--set", "cache.device=gpu", "--set", "cache.rows=100")


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([()], id="in one go"),
        pytest.param(
            [("--set", "train.max_steps=4"), ("--resume",)],
            id="stopped and resumed",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_ranks_on_gpus_do_what_ranks_in_memory_do(emulated, folder, parts):
    run = folder / f"gpu-{len(parts)}"
    for extra in parts:
        done = platform("train", folder / "run.yaml", "--run-dir", run, "--workers", 2, *ON_GPU,
                        *extra, "--json", folder / "gpu.json", package=emulated)  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert "cache of" in done.stdout
    assert keys_to_rows(folder / "gpu.json") == 1  # keys are sent once, also ahead
    assert_same_losses(run, folder / "ram", rtol=0)
    assert_same_model(run, folder / "ram", rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["column", "replicated", "row_broadcast"])
def test_every_sharding_on_gpus_does_what_it_does_in_memory(emulated, folder, sharding):
    splits = ("--set", f"tables.a.sharding={sharding}", "--set", f"tables.b.sharding={sharding}",
              "--set", "tables.a.optimizer=rowwise_adagrad")  # fmt: skip
    runs = [folder / f"{sharding}-{place}" for place in ("ram", "gpu")]
    for run, package, cache in zip(runs, (None, emulated), ((), ON_GPU), strict=True):
        done = platform("train", folder / "run.yaml", "--run-dir", run, "--workers", 2, *splits,
                        *cache, package=package)  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert_same_losses(runs[1], runs[0], rtol=0)
    assert_same_model(runs[1], runs[0], rtol=0, atol=0)


@pytest.mark.slow
def test_a_run_of_ranks_on_gpus_goes_on_in_memory(emulated, folder):
    run, result = folder / "moved", folder / "begun.json"
    begun = platform("train", folder / "run.yaml", "--run-dir", run, "--workers", 2, *ON_GPU,
                     "--set", "train.max_steps=2", "--set", "cache.prefetch=0",
                     "--json", result, package=emulated)  # fmt: skip
    assert begun.returncode == 0, begun.stderr
    assert keys_to_rows(result) == 1
    ended = platform("train", folder / "run.yaml", "--run-dir", run, "--workers", 2, "--resume")
    assert ended.returncode == 0, ended.stderr
    assert_same_model(run, folder / "ram", rtol=0, atol=0)


@pytest.mark.slow  # also in ops/native/tests/gpu/device_rank_failures_test.cc
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("parallel.staleness=2", "staleness with a cache on a GPU is not built yet"),
        ("parallel.device_collectives=nccl", "have one GPU, 0000:00:00.0, and NCCL needs one"),
    ],
)
def test_what_ranks_on_gpus_cannot_do_is_refused_in_a_line(emulated, folder, setting, words):
    done = platform("train", folder / "run.yaml", "--run-dir", folder / "refused", "--workers", 2,
                    *ON_GPU, "--set", setting, package=emulated)  # fmt: skip
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr
