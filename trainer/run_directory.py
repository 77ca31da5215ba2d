"""The directory of one training run.

`config.yaml` is the resolved configuration, `metrics.jsonl` has one line for each measurement,
`events/` has the same for TensorBoard, `checkpoints/` is what `--resume` and exports read,
`data.json` identifies the training files, and `from.json` names the run from which this run
started, if any.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from hotrow.atomic_text import write_atomically
from hotrow.config import RunConfig, load_config
from hotrow.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from hotrow.trainer.checkpoint import CheckpointDirectory
from hotrow.trainer.training_files import (
    FILES,
    Files,
    as_json,
    recorded_files,
    require_same_files,
)

CONFIG, METRICS, EVENTS, CHECKPOINTS = "config.yaml", "metrics.jsonl", "events", "checkpoints"
SOURCE = "from.json"
"""What the run started from, if that was another run."""
_LOCK = ".lock"
_OF_A_START = (CONFIG, FILES, SOURCE, "sharding.json", _LOCK)

# Settings that may differ in a continued run: they change how long, how observed and how fast it
# is, not the effect of a step. But with `parallel.staleness` evaluations and checkpoints change
# when owners receive updates, and a continued run starts without replicas: then bits differ.
_FREE_TO_CHANGE = (
    "train.epochs",
    "train.max_steps",
    "train.eval_every_steps",
    "train.early_stopping",
    "cache.",
    "checkpoint.",
    "export.",
    "data.valid",
    "parallel.",
    # Of `online` what changes no step: where and when to publish, gates, metrics, the admin port.
    "online.max_batch_seconds",
    "online.dead_letter_bytes",
    "online.model",
    "online.store",
    "online.publish_",
    "online.max_hold_seconds",
    "online.window_seconds",
    "online.frozen",
    "online.canary",
    "online.admin",
)
_FREE_OF_A_TABLE = (".sharding", ".max_nonfinite_share")
_PATHS = "data.train"
"""Compared by content, where the run has a record of it."""


def default_run_directory(name: str) -> Path:
    """Returns `runs/<name>-<date>-<time>` below the working directory."""
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def newest_run_directory(name: str) -> Path:
    """Returns the default directory of the newest run of this name that has a checkpoint.

    Raises:
        NotFoundError: no such run exists.
    """
    default = re.compile(rf"{re.escape(name)}-\d{{8}}-\d{{6}}")
    runs = [
        path
        for path in Path("runs").glob(f"{name}-*-*")
        if default.fullmatch(path.name) and (path / CONFIG).exists()
    ]
    found = [path for path in runs if CheckpointDirectory(path / CHECKPOINTS, 1).steps()]
    if found:
        return max(found, key=_begun)
    here = Path("runs").resolve()
    if runs:
        stub = max(runs, key=_begun)
        raise NotFoundError(
            f"no run of {name!r} in {here} has a checkpoint to resume from; leave --resume out, or "
            f"start {stub.name} over with --run-dir {stub} --resume"
        )
    raise NotFoundError(f"no run of {name!r} in {here} to resume; give --run-dir")


def _begun(path: Path) -> float:
    return (path / CONFIG).stat().st_mtime


class RunDirectory:
    """An opened run directory, locked against other writers until `close`.

    Attributes:
        path: the directory.
        checkpoints: its checkpoints.
    """

    def __init__(
        self, path: Path, keep_checkpoints: int, lock: int | None, new: bool = False
    ) -> None:
        """Wraps an existing directory; use `create`, `reopen` or `join`."""
        self.path = path
        self._new = new
        self.checkpoints = CheckpointDirectory(path / CHECKPOINTS, keep_checkpoints)
        self._lock = lock

    @classmethod
    def create(
        cls,
        path: Path,
        config: RunConfig,
        source: Mapping[str, Any] | None = None,
        files: Files | None = None,
    ) -> RunDirectory:
        """Makes the directory of a new run and writes its configuration.

        It replaces a run that ended before it measured or saved anything.

        Args:
            path: the directory.
            config: the run's configuration.
            source: JSON values that name the run from which it starts; None: it starts from
                nothing.
            files: the training files, to record; None: none are recorded.

        Raises:
            AlreadyExistsError: the directory holds a run already.
            InvalidArgumentError: the directory cannot be made or written.
            FailedPreconditionError: another process writes to it.
        """
        saved = CheckpointDirectory(path / CHECKPOINTS, 1).steps()
        if saved or (path / METRICS).exists():
            raise AlreadyExistsError(
                f"{path} holds a run already; add --resume to continue it, or choose another "
                "--run-dir"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = _lock(path)
            (path / SOURCE).unlink(missing_ok=True)
            if source is not None:
                write_atomically(path / SOURCE, json.dumps(source, indent=1) + "\n")
            _write_start(path, config, files)
        except OSError as err:
            raise InvalidArgumentError(
                f"cannot make run directory {path}: {err.strerror}; choose another --run-dir"
            ) from err
        return cls(path, config.checkpoint.keep, lock, new=True)

    @classmethod
    def reopen(
        cls,
        path: Path,
        config: RunConfig,
        files: Files | None = None,
        report: Callable[[str], None] = print,
    ) -> RunDirectory:
        """Opens the directory of a run to continue it.

        Args:
            path: the run directory.
            config: the configuration to continue with; it becomes the run's `config.yaml`.
            files: the training files of `config`. They must be those that the run recorded, at any
                path; a run without a checkpoint may start over with others. None: the paths must
                be the same.
            report: called with a line if the run has no record of its files.

        Raises:
            NotFoundError: the directory holds no run.
            InvalidArgumentError: `config` differs from the run's own in a way that would change its
                steps.
            FailedPreconditionError: another process writes to it, or the training files are others.
            DataLossError: the record of the files is damaged.
        """
        own = read_config(path)
        recorded = None if files is None else recorded_files(path)
        for key, before, now in _differences(own, config):
            of_a_table = key.startswith("tables.") and key.endswith(_FREE_OF_A_TABLE)
            by_content = key == _PATHS and recorded is not None
            if not (of_a_table or by_content or key.startswith(_FREE_TO_CHANGE)):
                raise InvalidArgumentError(
                    f"{key}: the run in {path} has {before!r}, now it is {now!r}; a run continues "
                    "with the same value, a new one needs another --run-dir"
                )
        if files is not None and CheckpointDirectory(path / CHECKPOINTS, 1).steps():
            if recorded is None:
                report(
                    f"{path} has no record of its training files (an older version wrote it): it "
                    "continues with those at the same paths, and records them now"
                )
            else:
                require_same_files(path, recorded, files)
        lock = _lock(path)
        _write_start(path, config, files)
        return cls(path, config.checkpoint.keep, lock)

    @classmethod
    def join(cls, path: Path, config: RunConfig) -> RunDirectory:
        """Returns the directory that rank 0 opened, for another rank of the same run."""
        return cls(path, config.checkpoint.keep, None)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Appends one line to `metrics.jsonl`; numbers without a JSON form become null.

        Raises:
            OSError: the disk is full or refuses; the file does not change.
        """
        line = json.dumps({key: finite_or_none(value) for key, value in record.items()}) + "\n"
        with (self.path / METRICS).open("ab", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                if file.write(line.encode()) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file.name))
            except OSError:
                file.truncate(end)
                raise

    def truncate_metrics(self, step: int) -> None:
        """Removes torn lines, and measurements after `step`, which will be made again.

        Raises:
            OSError: the disk refuses; or it is full, and others than the last lines must go.
        """
        path = self.path / METRICS
        if not path.exists():
            return
        before = path.read_bytes()
        kept = b"".join(
            line
            for line in before.splitlines(keepends=True)
            if line.endswith(b"\n") and (record := _record_of(line)) and record["step"] <= step
        )
        if before.startswith(kept):
            os.truncate(path, len(kept))  # needs no room
        else:
            write_atomically(path, kept.decode())

    def discard(self) -> None:
        """Removes what `create` and later calls have written; call it before `close`.

        It is for a start that fails before its first step. Other files in the directory stay; a
        reopened run stays whole.
        """
        if not self._new:
            return
        shutil.rmtree(self.path / EVENTS, ignore_errors=True)
        for name in _OF_A_START:
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it contains other files
            self.path.rmdir()

    def close(self) -> None:
        """Lets other processes write to the directory."""
        if self._lock is not None:
            os.close(self._lock)


def read_config(path: Path) -> RunConfig:
    """Returns the configuration of the run in a directory.

    Raises:
        NotFoundError: the directory holds no run.
        InvalidArgumentError: the file is damaged or has another version.
    """
    if not (path / CONFIG).exists():
        raise NotFoundError(f"no run in {path}: it has no {CONFIG}; give the directory of a run")
    return load_config(path / CONFIG)


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the whole lines of a run's `metrics.jsonl`, oldest first."""
    file = path / METRICS
    for line in file.read_bytes().splitlines() if file.exists() else ():
        if (record := _record_of(line)) is not None:
            yield record


def _record_of(line: bytes) -> dict[str, Any] | None:
    """Returns the measurement of a line; None: it is torn by a crash."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "step" in record else None


def _write_start(path: Path, config: RunConfig, files: Files | None) -> None:
    if files is not None:
        write_atomically(path / FILES, json.dumps(as_json(files), indent=1) + "\n")
    write_atomically(path / CONFIG, config.to_yaml())


def _lock(path: Path) -> int:
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as err:
        os.close(descriptor)
        raise FailedPreconditionError(
            f"another process trains in {path}; wait for it or choose another --run-dir"
        ) from err
    return descriptor


def _differences(one: RunConfig, other: RunConfig) -> Iterator[tuple[str, Any, Any]]:
    left, right = _flat(one.model_dump()), _flat(other.model_dump())
    for key in sorted(left.keys() | right.keys()):
        if left.get(key) != right.get(key):
            yield key, left.get(key), right.get(key)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        flat |= _flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return flat


def finite_or_none(value: Any) -> Any:
    """Returns `value` in a form that JSON can hold: None for NaN and infinities."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
