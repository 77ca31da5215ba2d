"""A trainer that is killed at any moment counts each event once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from integration.online.online_run import Work, click_rows, write_recording
from waiting import wait_until

EVENTS = 64 * 400
SEED = int(os.environ.get("HOTROW_SEED", random.randrange(2**32)))


def work_at(folder: Path, store: str, rows, speed: str, checkpoint_steps: int) -> Work:
    folder.mkdir()
    write_recording(folder / "recording.csv", rows)
    source = f"replay:{folder}/recording.csv?speed={speed}"
    return Work(folder, store, source, checkpoint_steps=checkpoint_steps)


def same_tables(one, other) -> None:
    assert one.keys() == other.keys()
    for name in one:
        for array in ("keys", "counts", "weights"):
            np.testing.assert_array_equal(one[name][array], other[name][array], f"{name} {array}")


def killed_once(work: Work, seconds: float, log: str) -> bool:
    """Kills a trainer a while after it goes on; returns whether it ended before."""
    resume = ("--resume",) if (work.folder / "run" / "config.yaml").exists() else ()
    trainer = work.start(*resume, log=log)
    wait_until(lambda: trainer.poll() is not None or bool(work.log(log)), lambda: log, 120)
    try:
        assert trainer.wait(timeout=seconds) == 0, work.log(log)
        return True
    except subprocess.TimeoutExpired:
        trainer.send_signal(signal.SIGKILL)
        trainer.wait()
        return False


# Among a hundred lives are many short ones: they must write checkpoints to get on.
@pytest.mark.parametrize(
    ("kills", "checkpoint_steps"), [(3, 7), pytest.param(100, 1, marks=pytest.mark.slow)]
)
def test_each_event_counts_once_however_often_the_trainer_is_killed(
    kills, checkpoint_steps, tmp_path, redis_server
):
    """Bit for bit as an uninterrupted run of the same batches; the store has the same rows."""
    rows = click_rows(EVENTS)
    chance = random.Random(SEED)
    whole = work_at(tmp_path / "whole", "", rows, "max", checkpoint_steps)
    whole.train()
    assert whole.events() == EVENTS
    lives = [chance.uniform(0.0, 8.0) for _ in range(kills)]
    # Events last a little longer than all lives of the trainer.
    speed = EVENTS * 0.01 / (sum(lives) + 2.0)
    work = work_at(tmp_path / "killed", redis_server.url, rows, f"{speed:g}", checkpoint_steps)
    work.configure("  max_batch_seconds: 1000.0\n")  # full batches, as in the uninterrupted run
    for number, seconds in enumerate(lives):
        ended = killed_once(work, seconds, f"log-{number}")
        assert not ended, f"{number} of {kills} kills, seed {SEED}"
    work.train("--resume", seconds=240 + sum(lives))
    assert work.events() == EVENTS, f"seed {SEED}"
    same_tables(whole.tables(), work.tables())
    work.check_store()
