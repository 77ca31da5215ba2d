"""The record of a run's training files: a run continues with the files that it began with.

Every epoch reads every file, and the windows of the shuffle depend on all rows before them. So any
other content, and any other order of the files, would give other steps than the uninterrupted run.
Only the paths may change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pydantic

from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.trainer.data import Paths, each_path
from hotrow.trainer.data.file_identity import FileIdentity, identity_of

FILES = "data.json"
"""The file of the record, in the run directory."""
_FORMAT = 1

Files = Sequence[FileIdentity]


class _File(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    path: str
    bytes: Annotated[int, pydantic.Field(ge=0)]
    sha256: str


class _Record(pydantic.BaseModel):
    train: Annotated[list[_File], pydantic.Field(min_length=1)]


def files_of(paths: Paths) -> list[FileIdentity]:
    """Returns the identity of each training file, in order.

    Raises:
        DataError: one cannot be read.
    """
    return [identity_of(path) for path in each_path(paths)]


def as_json(files: Files) -> dict[str, Any]:
    """Returns the record of the files of a run, as JSON types."""
    return {"format": _FORMAT, "train": [asdict(file) for file in files]}


def recorded_files(run_dir: Path) -> list[FileIdentity] | None:
    """Returns the training files that a run recorded; None: an older version wrote the run.

    Raises:
        DataLossError: the record is damaged.
        FailedPreconditionError: it has another format.
    """
    path = run_dir / FILES
    if not path.exists():
        return None
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        number = facts["format"]
        record = _Record.model_validate(facts) if number == _FORMAT else None
    except (OSError, KeyError, TypeError, ValueError) as err:
        reason = str(err).partition("\n")[0]
        raise DataLossError(
            f"{path} is damaged: {reason}; remove it to continue without comparing the files"
        ) from err
    if record is None:
        raise FailedPreconditionError(
            f"{path} has format {number!r}, this version of Hotrow reads {_FORMAT}; use the "
            "version that wrote it"
        )
    return [FileIdentity(**file.model_dump()) for file in record.train]


def require_same_files(run_dir: Path, before: Files, now: Files) -> None:
    """Checks that a run continues with the files that it began with, in their order.

    Args:
        run_dir: the run, for messages.
        before: the recorded files.
        now: the files of its configuration.

    Raises:
        FailedPreconditionError: a file has other content, or the files or their order differ.
    """
    difference = _difference(before, now)
    if difference is not None:
        raise FailedPreconditionError(
            f"data.train: {difference}; a run continues with the same files, for others start a "
            f"new run: --from {run_dir} with another --run-dir"
        )


def _difference(before: Files, now: Files) -> str | None:
    """Returns how the files differ, by name; None: they do not."""
    if list(before) == list(now):
        return None
    if len(before) != len(now):
        files = f"{len(now)} file{'s' if len(now) > 1 else ''}"
        parts = [f"it has {files}, it had {len(before)}"]
        parts += _named("new", (file for file in now if file not in before))
        parts += _named("missing", (file for file in before if file not in now))
        return "; ".join(parts)
    number = next(i for i in range(len(now)) if before[i] != now[i])
    old, new = before[number], now[number]
    if new in before:
        order = ", ".join(_names(before))
        return (
            f"file {number + 1} is {new.path}, it was {old.path}; give the files in the order of "
            f"the run: {order}"
        )
    where = "" if new.path == old.path else f" (it was {old.path})"
    if new.bytes == old.bytes:
        return f"{new.path} has other content than when the run began{where}"
    if new.bytes > old.bytes and identity_of(Path(new.path), old.bytes) == old:
        return f"{new.path} has grown from {old.bytes:,} to {new.bytes:,} bytes{where}"
    return f"{new.path} has {new.bytes:,} bytes, it had {old.bytes:,} when the run began{where}"


def _named(what: str, files: Iterable[FileIdentity]) -> list[str]:
    names = _names(files)
    return [f"{what}: {', '.join(names)}"] if names else []


def _names(files: Iterable[FileIdentity]) -> list[str]:
    return [file.path for file in files]
