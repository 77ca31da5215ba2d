"""Damages checkpoints at random and restores them: all that was written, or a clear refusal.

A run's directory of one full checkpoint and two increments is damaged in one of many ways. Where
only bytes change, every checksum must find it: what is restored equals one of the checkpoints, or
nothing is. With `resealed` damage the checksums are made right again, so that what lies behind
them is reached: types, shapes, numbers, names. Then what is restored must at least be whole. In
both cases the only errors are DataLossError and FailedPreconditionError, and afterwards a table is
as it was before, or empty.

Run it by `make fuzz`, or `python tests/fuzz/fuzz_checkpoint.py --seconds 60`. A failing case is
repeated by `--first CASE --cases 1` with the same `--seed`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


import keras
import numpy as np

import hotrow
from hotrow import _native
from hotrow.config import CheckpointConfig
from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.ops.table import Table
from hotrow.sealed_directory import MANIFEST, seal_of
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
# What stands in for a number, a name or a list somewhere in a manifest.
_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**32, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0,
    1e308, "", "a", "0", "..", "../../etc/passwd", "t-00000.safetensors", "\x00", "\ud800", "é",
    [], [0], [None], ["step-00000005"], {}, {"a": 1}, [[[]]],
)  # fmt: skip


class Run:
    """Two tables and two dense variables, trained by a random generator, saved and restored."""

    def __init__(self, directory: Path) -> None:
        self._tables = {name: Table(config, seed=3) for name, config in _TABLES.items()}
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


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def _flip_bits(root: Path, random: Random) -> str:
    path = random.choice(_files(root))
    content = bytearray(path.read_bytes())
    if not content:
        return "nothing"
    for _ in range(random.choice((1, 1, 1, 2, 50))):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    return f"flip bits of {path.name}"


def _cut(root: Path, random: Random) -> str:
    path = random.choice(_files(root))
    size = path.stat().st_size
    left = random.choice((0, 1, size // 2, max(0, size - 1), random.randint(0, size)))
    path.write_bytes(path.read_bytes()[:left])
    return f"cut {path.name} to {left}"


def _extend(root: Path, random: Random) -> str:
    path = random.choice(_files(root))
    more = random.choice((b"\0", b" ", b"\n", random.randbytes(8), b"}", path.read_bytes()))
    path.write_bytes(path.read_bytes() + more)
    return f"extend {path.name}"


def _swap(root: Path, random: Random) -> str:
    one, two = random.choice(_files(root)), random.choice(_files(root))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    return f"swap {one.relative_to(root)} and {two.relative_to(root)}"


def _copy_over(root: Path, random: Random) -> str:
    one, two = random.choice(_files(root)), random.choice(_files(root))
    one.write_bytes(two.read_bytes())
    return f"{two.relative_to(root)} over {one.relative_to(root)}"


def _remove(root: Path, random: Random) -> str:
    path = random.choice(_files(root))
    path.unlink()
    if random.random() < 0.3:
        path.mkdir()
        return f"a directory instead of {path.name}"
    return f"remove {path.name}"


def _move_checkpoint(root: Path, random: Random) -> str:
    steps = sorted(root.iterdir())
    path = random.choice(steps)
    what = random.randrange(4)
    if what == 0:
        shutil.rmtree(path)
        return f"remove {path.name}"
    if what == 1:
        if not (root / "step-00000099").exists():
            path.rename(root / "step-00000099")
        return f"rename {path.name}"
    if what == 2:
        target = root / random.choice(("step-00000099", "step-00000001", "step-x"))
        if target.exists():  # an earlier move made it
            return "nothing"
        shutil.copytree(path, target)
        return f"copy {path.name}"
    other = random.choice(steps)
    if other == path:
        return "nothing"
    path.rename(root / "x")
    other.rename(path)
    (root / "x").rename(other)
    return f"exchange {path.name} and {other.name}"


def _edit_unsealed(root: Path, random: Random) -> str:
    path = random.choice(sorted(root.iterdir())) / MANIFEST
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError):  # another damage came before
        return "nothing"
    what = _change_value(facts, random)
    path.write_text(json.dumps(facts))
    return f"unsealed {what}"


def _change_value(facts: Any, random: Random) -> str:
    """Replaces, removes or doubles one value somewhere in a JSON value."""
    places: list[tuple[Any, Any, str]] = []

    def walk(value: Any, where: str) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in items:
            places.append((value, key, f"{where}/{key}"))
            if isinstance(child, dict | list):
                walk(child, f"{where}/{key}")

    walk(facts, "")
    # The long list of the random generators' words is one of many places.
    shallow = [place for place in places if place[2].count("/") < 4] or places
    holder, key, where = random.choice(shallow if random.random() < 0.5 else places)
    what = random.randrange(5)
    if what == 0:
        del holder[key]
        return f"del {where}"
    if what == 1 and isinstance(holder[key], int):
        holder[key] += random.choice((-1, 1, 1000))
    elif what == 2 and isinstance(holder, dict):
        holder[random.choice(("", "x", *map(str, holder)))] = holder[key]
    else:
        holder[key] = random.choice((*_ODD, random.choice(places)[0]))
        with contextlib.suppress(ValueError):
            json.dumps(facts)
            return f"{where} = {str(holder[key])[:60]}"
        holder[key] = None  # it contained itself
    return f"{where} = {str(holder[key])[:60]}"


def _change_array(path: Path, random: Random) -> str:
    """Changes the header or the values of a safetensors file; its lengths may stop fitting."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header: dict[str, Any] = json.loads(content[8 : 8 + length])
    data = bytearray(content[8 + length :])
    if not header:
        return "nothing"
    name = random.choice(sorted(header))
    tensor = header[name]
    begin, end = tensor["data_offsets"]
    what = random.randrange(8)
    said = f"{path.name}:{name} {what}"
    if what == 0:
        del header[name]
    elif what == 1:
        header[random.choice(("x", "keys", *header))] = header.pop(name)
    elif what == 2:
        tensor["dtype"] = random.choice(
            ("U8", "I8", "I32", "U32", "I64", "U64", "F32", "F64", "BF16", "BOOL", "X", 3)
        )
    elif what == 3:
        tensor["shape"] = random.choice(
            (
                [],
                [0],
                [-1],
                [1],
                [2**62, 2],
                [end - begin],
                *([s, *tensor["shape"]] for s in (0, 1)),
            )
        )
    elif what == 4:
        tensor["data_offsets"] = random.choice(
            ([0, 0], [begin, end - 1], [end, begin], [-1, end], [begin, 2**63], [0, end])
        )
    elif what == 5 and tensor["shape"]:  # one row fewer of one array, lengths fitting
        rows = max(1, tensor["shape"][0])
        size = (end - begin) // rows
        del data[end - size : end]
        for other in header.values():
            other["data_offsets"] = [
                o - size if o >= end and o > 0 else o for o in other["data_offsets"]
            ]
        tensor["shape"][0] = rows - 1
    elif end > begin:
        special = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 255)
        for _ in range(random.choice((1, 1, 5))):
            at = random.randrange(begin, end, 4) if end - begin >= 4 else begin
            value = struct.pack("<Q", random.choice(special))[: random.choice((1, 4, 8))]
            if random.random() < 0.3:  # another row's value
                other = random.randrange(begin, end, 4) if end - begin >= 4 else begin
                value = bytes(data[other : other + 8])
            value = value[: end - at]
            data[at : at + len(value)] = value
        said += " values"
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return said


def _change_state(path: Path, random: Random) -> str:
    """Changes bytes of a table's state and makes its own checksum right."""
    content = bytearray(path.read_bytes())[:-8]
    special = (0, 1, 2**31, 2**32 - 1, 2**64 - 1, random.getrandbits(64))
    for _ in range(random.choice((1, 1, 3))):
        at = random.randrange(0, len(content), random.choice((1, 4)))
        value = struct.pack("<Q", random.choice(special))[: random.choice((1, 4, 8))]
        content[at : at + len(value)] = value
    if random.random() < 0.2:
        content = content[: random.randrange(len(content))]
    (checksum,) = _native.fingerprint64([bytes(content)])
    path.write_bytes(bytes(content) + struct.pack("<q", checksum))
    return f"state {path.name}"


def _resealed(root: Path, random: Random) -> str:
    """Changes what checksums protect and makes them right."""
    directory = random.choice(sorted(root.iterdir()))
    manifest = directory / MANIFEST
    facts = json.loads(manifest.read_bytes())
    del facts["seal"]
    if random.random() < 0.4:
        said = _change_value(facts, random)
    else:
        path = random.choice([p for p in _files(directory) if p.name != MANIFEST])
        if path.suffix == ".json":
            value = json.loads(path.read_bytes())
            said = f"{path.name}{_change_value(value, random)}"
            path.write_text(json.dumps(value))
        elif path.suffix == ".state":
            said = _change_state(path, random)
        elif path.suffix == ".safetensors" and random.random() < 0.9:
            said = _change_array(path, random)
        else:
            said = _flip_bits_of(path, random)
        name = path.relative_to(directory).as_posix()
        content = path.read_bytes()
        facts["files"][name] = {
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
        }
    seal = _seal(manifest, facts)
    if random.random() < 0.9:
        _seal_above(root, directory.name, seal)
    return f"resealed {directory.name} {said}"


def _flip_bits_of(path: Path, random: Random) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(random.choice((1, 3))):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    return f"flip bits of {path.name}"


def _seal(manifest: Path, facts: Any) -> str:
    try:
        seal = seal_of(facts)
    except (TypeError, ValueError):  # keys of several types do not sort
        seal = ""
    manifest.write_text(json.dumps({**facts, "seal": seal}))
    return seal


_NOT_A_LIST = (AttributeError, IndexError, KeyError, TypeError, ValueError)


def _seal_above(root: Path, name: str, seal: str) -> None:
    """Lets the increments above a changed checkpoint expect its new seal."""
    for directory in sorted(root.iterdir()):
        manifest = directory / MANIFEST
        facts = json.loads(manifest.read_bytes())
        del facts["seal"]
        with contextlib.suppress(*_NOT_A_LIST):
            facts["parent_seals"][facts["parents"].index(name)] = seal
            seal_here = _seal(manifest, facts)
            if directory.name != name:
                _seal_above_once(root, directory.name, seal_here)


def _seal_above_once(root: Path, name: str, seal: str) -> None:
    for directory in sorted(root.iterdir()):
        if directory.name <= name:
            continue
        manifest = directory / MANIFEST
        facts = json.loads(manifest.read_bytes())
        del facts["seal"]
        with contextlib.suppress(*_NOT_A_LIST):
            facts["parent_seals"][facts["parents"].index(name)] = seal
            _seal(manifest, facts)


_RAW: tuple[Callable[[Path, Random], str], ...] = (
    _flip_bits, _cut, _extend, _swap, _copy_over, _remove, _move_checkpoint, _edit_unsealed,
)  # fmt: skip


# --- one case -----------------------------------------------------------------------------------


class Fuzzer:
    """Repeats: a copy of good checkpoints, damage, a restoration, its judgement."""

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
            AssertionError: what must not happen did. Any other exception is as bad.
        """
        random = Random(f"{self._seed}/{number}")
        root = self._scratch / "case"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self._good, root)
        resealed = random.random() < 0.6
        said = self.damage = []
        if resealed:
            said.append(_resealed(root, random))
        else:
            for _ in range(random.choice((1, 1, 2))):
                said.append(random.choice(_RAW)(root, random))
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
