"""What became of a checkpoint, and how its failures are reported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotrow.errors import HotrowError, ResourceExhaustedError
from hotrow.trainer.checkpoint.position import Position

NICENESS = 10
"""Of the threads that write."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a checkpoint.

    Attributes:
        position: the step that it is of.
        kind: "full" or "increment".
        bytes: of its files.
        seconds: from the snapshot until it was on the disk.
        stall_seconds: how long training stood still for it.
        failure: why there is none; None if there is one.
    """

    position: Position
    kind: str
    bytes: int
    seconds: float
    stall_seconds: float
    failure: HotrowError | None = None

    def metrics(self) -> dict[str, Any]:
        """Returns what a line of `metrics.jsonl` says about it."""
        return {
            "checkpoint": self.kind,
            "bytes": self.bytes,
            "checkpoint_seconds": self.seconds,
            "checkpoint_stall_seconds": self.stall_seconds,
        }


class AbandonedError(Exception):
    """The run ends at once, or another rank has failed."""


EXPECTED = (OSError, HotrowError, MemoryError)
"""What may end a writing without being a defect."""


def no_room(needed: int, free: int, path: Path) -> str:
    """Returns why nothing is written to a disk without room."""
    return f"{needed:,} bytes needed, {free:,} free at {path}; make room, or lower checkpoint.keep"


def as_failure(err: BaseException) -> HotrowError:
    """Returns one of `EXPECTED` as an error of Hotrow."""
    if isinstance(err, HotrowError):
        return err
    if isinstance(err, OSError):
        return HotrowError(f"{err.filename or 'the disk'}: {err.strerror or err}")
    return ResourceExhaustedError(f"out of memory: {err}")
