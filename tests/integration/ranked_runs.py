"""Runs of `platform train` on several ranks, and what they left, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from hotrow.trainer.checkpoint import CheckpointDirectory
from hotrow.trainer.checkpoint.array_file import read_arrays
from hotrow.trainer.checkpoint.rows import CheckpointRows
from hotrow.trainer.run_directory import read_metrics

PLATFORM = (sys.executable, "-m", "hotrow.cli.main")
MPIEXEC = str(Path(sys.executable).with_name("mpiexec"))


def platform(*arguments, before=(), timeout=300):
    """Runs `platform ARGUMENTS`, as arguments of the command `before` if one is given."""
    return subprocess.run(
        [*before, *PLATFORM, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


def start(*arguments):
    """Starts `platform ARGUMENTS`."""
    return subprocess.Popen(
        [*PLATFORM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def processes_of(run):
    """Returns the ids of processes that have the run's directory in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(run).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def ranks_of(run, count):
    """Returns the process ids of the ranks of a run, once they are there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ranks = {}
        for pid in sorted(processes_of(run)):  # a rank comes after the process that keeps it
            try:
                environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            for entry in environ:
                if entry.startswith(b"PMI_RANK="):
                    ranks[int(entry[9:])] = pid
        if len(ranks) == count:
            return ranks
        time.sleep(0.05)
    raise TimeoutError(f"{count} ranks of {run} did not come")


def wait_for_checkpoint(run, process):
    """Returns when the run has a checkpoint."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if list((run / "checkpoints").glob("step-*")):
            return
        if process.poll() is not None:
            raise AssertionError(process.communicate())
        time.sleep(0.05)
    raise TimeoutError(f"{run} has no checkpoint")


def wait_until_gone(run, seconds):
    """Returns how long it took until no process of the run was left.

    Raises:
        TimeoutError: they stayed; they are killed.
    """
    begin = time.monotonic()
    while left := processes_of(run):
        if time.monotonic() - begin > seconds:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            raise TimeoutError(f"processes {left} of {run} stayed")
        time.sleep(0.05)
    return time.monotonic() - begin


def losses(run, kind="train"):
    """Returns the loss by step."""
    return {r["step"]: r["logloss"] for r in read_metrics(run) if r["kind"] == kind}


def newest(run):
    """Returns the directory of the newest checkpoint."""
    directory = CheckpointDirectory(run / "checkpoints", 1)
    return directory.of_step(directory.steps()[-1])


def rows_of(run):
    """Returns keys, weights, clocks and counts of each table, in the order of the keys."""
    rows = CheckpointRows(newest(run))
    found = {}
    for name in rows.tables():
        layout = rows.layout(name)
        pieces = [
            (p.keys, layout.weights(p.lines), p.clocks, p.counts)
            for p in rows.read(name, lambda _: None)
        ]
        arrays = [np.concatenate(one) for one in zip(*pieces, strict=True)]
        order = np.argsort(arrays[0])
        found[name] = [array[order] for array in arrays]
    return found


def assert_same_model(one, other, rtol=2e-5, atol=1e-6):
    """Checks that two runs have the same keys, clocks and counts, and about the same weights."""
    left, right = rows_of(one), rows_of(other)
    assert left.keys() == right.keys()
    for name, (keys, weights, clocks, counts) in left.items():
        their_keys, their_weights, their_clocks, their_counts = right[name]
        np.testing.assert_array_equal(keys, their_keys, err_msg=name)
        np.testing.assert_array_equal(clocks, their_clocks, err_msg=name)
        np.testing.assert_array_equal(counts, their_counts, err_msg=name)
        np.testing.assert_allclose(weights, their_weights, rtol=rtol, atol=atol, err_msg=name)
    mine, theirs = (read_arrays(newest(run) / "model.safetensors") for run in (one, other))
    assert mine.keys() == theirs.keys()
    for name, values in mine.items():
        np.testing.assert_allclose(values, theirs[name], rtol=rtol, atol=atol, err_msg=name)


def assert_same_losses(one, other, rtol=1e-6):
    """Checks that two runs have the same losses at the steps that both report.

    Those are the steps with validation. Training also reports at intervals of time in between.
    """
    assert losses(one, "valid").keys() == losses(other, "valid").keys()
    for kind in ("train", "valid"):
        left, right = losses(one, kind), losses(other, kind)
        common = sorted(left.keys() & right.keys())
        assert set(losses(one, "valid")) <= set(common)
        assert common
        np.testing.assert_allclose(
            [left[step] for step in common], [right[step] for step in common], rtol=rtol
        )
