"""A disk that fills up while `platform train` runs: training goes on, nothing good is lost.

A limit on the size of a file stands for the disk: the kernel refuses the write, with EFBIG in
place of ENOSPC. `tests/unit/trainer/checkpoint/test_writer.py` has a real full file system, where
the user may make one.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys

import pytest
import yaml

from hotrow.trainer.trained_run import load_run

STEPS, BATCH, KIB = 60, 16, 128


@pytest.fixture
def config(tmp_path):
    """A run whose one table grows by about 7 KiB a step."""
    chance = random.Random(1)
    lines = (
        f"{int(chance.random() < 0.4)},{chance.randint(0, 10**9)}" for _ in range(STEPS * BATCH)
    )
    (tmp_path / "train.csv").write_text("\n".join(["label,item", *lines]) + "\n")
    values = {
        "name": "m",
        "data": {"format": "csv", "train": str(tmp_path / "train.csv"), "batch_size": BATCH},
        "features": {"sparse": {"columns": ["item"], "dim": 48}},
        "model": {"arch": "wide_deep", "hidden": [4]},
        "checkpoint": {"every_steps": 5, "keep": 2, "asynchronous": False},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    return tmp_path / "config.yaml"


def train(*arguments, file_kib="unlimited"):
    command = [sys.executable, "-m", "hotrow.cli.main", "train", *map(str, arguments)]
    return subprocess.run(
        ["bash", "-c", 'ulimit -f "$0" && exec "$@"', str(file_kib), *command],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "full_every",
    [
        pytest.param(1, id="full ones", marks=pytest.mark.slow),
        pytest.param(3, id="increments"),
    ],
)
def test_training_goes_on_over_a_full_disk_and_only_the_last_checkpoint_must_succeed(
    config, tmp_path, full_every
):
    run = tmp_path / "run"
    more = ["--set", f"checkpoint.full_every={full_every}"]
    result = train(config, "--run-dir", run, *more, file_kib=KIB)
    assert result.returncode == 1, result.stderr
    warned = [line for line in result.stderr.splitlines() if "training goes on" in line]
    steps = [int(re.search(r"checkpoint of step (\d+) is not", line)[1]) for line in warned]
    saved = [
        json.loads(line)["step"]
        for line in (run / "metrics.jsonl").read_text().splitlines()
        if '"checkpoint"' in line
    ]
    assert saved[:2] == [5, 10]
    assert steps, result.stderr
    assert sorted([*steps, *saved]) == list(range(5, STEPS + 1, 5))
    for line in warned:
        needed, free = re.search(r": ([\d,]+) bytes needed, ([\d,]+) free at ", line).groups()
        assert KIB << 10 < int(needed.replace(",", "")) < int(free.replace(",", ""))
        assert f"the checkpoint of step {max(s for s in saved if s < steps[0])} stays" in warned[0]
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"Error: checkpoint of step {STEPS} is not written: ")
    assert last.endswith(f"; the checkpoint of step {saved[-1]} stays")
    assert not list((run / "checkpoints").glob(".unfinished-*"))
    resumed = train(config, "--run-dir", run, "--resume", *more)
    assert resumed.returncode == 0, resumed.stderr
    assert f"at step {saved[-1]}" in resumed.stderr
    assert train(config, "--run-dir", tmp_path / "straight", *more).returncode == 0
    one, other = load_run(run).model, load_run(tmp_path / "straight").model
    assert {n: t.digest() for n, t in one.tables().items()} == {
        n: t.digest() for n, t in other.tables().items()
    }
