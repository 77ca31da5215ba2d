"""Damages checkpoints at random and restores them: all that was written, or a clear refusal.

A run's directory of one full checkpoint and two increments is damaged in one of many ways. Where
only bytes change, every checksum must find it: a restore gives one of the checkpoints or nothing.
`resealed` damage makes the checksums right again to reach the code behind them: types, shapes,
numbers, names. Then a restored checkpoint must at least be whole. In
both cases the only errors are DataLossError and FailedPreconditionError, and afterwards a table is
as it was before, or empty.

Run it by `make fuzz`, or `python tests/fuzz/fuzz_checkpoint.py --seconds 60`. A failing case is
repeated by `--first CASE --cases 1` with the same `--seed`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


import keras
import numpy as np
from checkpoint_damage import RAW_DAMAGE, damage_sealed

import hotrow
from hotrow.config import CheckpointConfig
from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.ops.table import Table
from hotrow.trainer.checkpoint import CheckpointDirectory, Position
from hotrow.trainer.checkpoint.random_state import restore_random_state
from hotrow.trainer.checkpoint.writer import CheckpointWriter
from hotrow.trainer.metrics import BinaryMetrics

STEPS = (5, 10, 15)
_TABLES = {
    "t": hotrow.TableConfig(
        "t",
        4,
        optimizer=hotrow.Adam(0.1),
        dtype="bfloat16",
        admission=hotrow.Admission(2),
        expiry=hotrow.Expiry(after_steps=6, sweep_steps=3),
        shards=2,
    ),
    "a/b": hotrow.TableConfig("a/b", 3, optimizer=hotrow.SGD(0.1), vocabulary_size=100),
}


class Run:
    """Two tables and two dense variables, trained by a random generator, saved and restored."""

    def __init__(self, directory: Path) -> None:
        self._tables = {name: Table(config, seed=3) for name, config in _TABLES.items()}
        for table in self._tables.values():
            table.keep_tombstones()
        self._dense = [
            keras.Variable(np.zeros((3, 2), "float32"), name="kernel"),
            keras.Variable(0, dtype="int64", name="steps"),
        ]
        self.optimizer = SimpleNamespace(
            variables=[keras.Variable(np.zeros(4, "float32"), name="momentum")]
        )
        self.metrics = BinaryMetrics()
        self.move_to(directory)

    def move_to(self, directory: Path) -> None:
        """Reads and writes checkpoints there from now on."""
        config = CheckpointConfig(full_every=4, keep=50, asynchronous=False)
        self.directory = CheckpointDirectory(directory, keep=50)
        self._writer = CheckpointWriter(self.directory, config, self, self.optimizer, print)  # type: ignore[arg-type]

    def tables(self) -> dict[str, Table]:
        """As a model's."""
        return self._tables

    def dense_variables(self) -> list[Any]:
        """As a model's."""
        return self._dense

    def train(self, first: int, last: int) -> None:
        """Trains steps of keys in a window that moves up, so that old ones expire."""
        for step in range(first, last):
            random = np.random.default_rng(step)
            for table, low in zip(self._tables.values(), (3 * step - 30, 0), strict=True):
                keys = low + random.integers(0, 60, 40)
                table.lookup(keys, insert=True)
                table.update(keys, random.normal(size=(40, table.dim)).astype(np.float32))
            for variable in [*self._dense, *self.optimizer.variables]:
                variable.assign(random.integers(0, 100, variable.shape))
            self.metrics.update(
                random.integers(0, 2, 8).astype(np.float32),
                random.normal(size=8).astype(np.float32),
            )

    def save(self, step: int) -> None:
        """Writes a checkpoint."""
        self._writer.finish(Position(step, 1, step), self.metrics.state)

    def dense(self) -> list[list[Any]]:
        """Returns the values of dense variables."""
        return [np.asarray(v).tolist() for v in [*self._dense, *self.optimizer.variables]]

    def rows(self) -> dict[str, Any]:
        """Returns all rows and the rest of the state of each table."""
        found = {}
        for name, table in self._tables.items():
            snapshot = table.snapshot("all")
            arrays: list[list[Any]] = [[], [], [], [], []]
            while len((piece := snapshot.read(10**5))[0]):
                for array, more in zip(arrays, piece, strict=True):
                    array.extend(more.tolist())
            snapshot.close()
            found[name] = (arrays, table.state(), table.digest())
        return found


# --- damage -------------------------------------------------------------------------------------


# --- one case -----------------------------------------------------------------------------------


class Fuzzer:
    """Repeats: copies good checkpoints, damages them, restores them and checks the result."""

    def __init__(self, scratch: Path, seed: int) -> None:
        self._scratch = scratch
        self._seed = seed
        self._good = scratch / "good"
        writer = Run(self._good)
        # What each checkpoint must restore.
        self._expected: dict[int, tuple[Any, Any, Any]] = {}
        done = 0
        for step in STEPS:
            writer.train(done, step)
            writer.save(step)
            self._expected[step] = writer.rows(), writer.dense(), writer.metrics.result()
            done = step
        self._run = Run(scratch / "none")
        self._run.train(100, 103)
        self._before = self._run.rows()
        self.outcomes: Counter[str] = Counter()
        shutil.copytree(self._good, scratch / "case")
        self._judge(scratch / "case", resealed=False)
        assert self.outcomes == {"restored": 1}, "undamaged checkpoints are refused"
        self.damage: list[str] = []

    def case(self, number: int) -> str:
        """Runs one case and returns what was damaged.

        Raises:
            AssertionError: the case failed. Any other exception is a failure, too.
        """
        random = Random(f"{self._seed}/{number}")
        root = self._scratch / "case"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self._good, root)
        resealed = random.random() < 0.6
        said = self.damage = []
        if resealed:
            said.append(damage_sealed(root, random))
        else:
            for _ in range(random.choice((1, 1, 2))):
                said.append(random.choice(RAW_DAMAGE)(root, random))
        self._judge(root, resealed)
        return "; ".join(said)

    def _judge(self, root: Path, resealed: bool) -> None:
        run = self._run
        run.move_to(root)
        dense = run.dense()
        reports: list[str] = []
        restored, refusal = None, None
        try:
            restored = run.directory.restore_newest(run, run.optimizer, reports.append)  # type: ignore[arg-type]
        except (DataLossError, FailedPreconditionError) as err:
            refusal = str(err)
        if refusal is not None:
            self.outcomes["refused"] += 1
            assert "\n" not in refusal, f"an error of several lines: {refusal}"
            sizes = {name: table.size for name, table in run.tables().items()}
            assert run.rows() == self._before or not any(sizes.values()), f"half restored: {sizes}"
            assert run.dense() == dense, "dense variables changed"
            self._renew(changed=run.rows() != self._before)
            return
        if restored is None:
            self.outcomes["none"] += 1
            assert not list(root.glob("step-*")), "checkpoints were not seen"
            return
        self.outcomes["passed over" if reports else "restored"] += 1
        try:
            run.metrics.set_state(restored.metrics)
            restore_random_state(restored.random)
            whole = True
        except (DataLossError, FailedPreconditionError):
            assert resealed, "damage was found late"
            whole = False
        if not resealed:
            rows, dense, metrics = self._expected[restored.position.step]
            assert run.rows() == rows, f"rows of step {restored.position.step} differ"
            assert run.dense() == dense, "dense variables differ"
            assert run.metrics.result() == metrics, "metrics differ"
        elif whole:
            for table in run.tables().values():
                (keys, *_), _, _ = run.rows()[table.name]
                assert len(set(keys)) == len(keys) == table.size, "rows are not whole"
            if all(table.step < 2**31 for table in run.tables().values()):
                run.train(100, 102)
        self._renew(changed=True)

    def _renew(self, changed: bool) -> None:
        if not changed:
            return
        run = self._run
        for table in run.tables().values():
            table.clear()
        run.train(100, 103)
        self._before = run.rows()


def main() -> int:
    """Runs cases until the time is over; 1 when one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, default=sys.maxsize)
    parser.add_argument("--failures", type=int, default=1, help="stop after so many")
    parser.add_argument("--keep", type=Path, help="where a failing case's directory is put")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as name:
        fuzzer = Fuzzer(Path(name), options.seed)
        end = time.monotonic() + options.seconds
        number = options.first
        while time.monotonic() < end and number < options.first + options.cases:
            try:
                fuzzer.case(number)
            except BaseException as err:
                failures += 1
                print(f"case {number} of seed {options.seed}: {'; '.join(fuzzer.damage)!a}")
                if isinstance(err, KeyboardInterrupt):
                    raise
                print(
                    ascii("".join(traceback.format_exception(err, limit=-4))).replace("\\n", "\n")
                )
                if options.keep is not None:
                    kept = options.keep / f"checkpoint-{options.seed}-{number}"
                    shutil.copytree(Path(name) / "case", kept, dirs_exist_ok=True)
                    print(f"kept in {kept}")
                if failures >= options.failures:
                    break
                fuzzer._renew(changed=True)
            number += 1
    outcomes = ", ".join(f"{count} {what}" for what, count in fuzzer.outcomes.most_common())
    print(f"{number - options.first} cases, {failures} failed; {outcomes}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
