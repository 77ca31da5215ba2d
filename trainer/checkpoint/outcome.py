"""The outcome of a checkpoint, and the report of its failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotrow.errors import HotrowError, ResourceExhaustedError
from hotrow.trainer.checkpoint.position import Position


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a checkpoint.

    Attributes:
        position: the position of the run in the checkpoint.
        kind: "full" or "increment".
        bytes: size of its files.
        seconds: time from the snapshot until it was on the disk.
        stall_seconds: how long training waited for it.
        failure: why it failed; None: it did not.
        nonfinite_rows: rows that hold a NaN or an infinity, by table; only on rank 0.
    """

    position: Position
    kind: str
    bytes: int
    seconds: float
    stall_seconds: float
    failure: HotrowError | None = None
    nonfinite_rows: dict[str, int] = field(default_factory=dict)

    def metrics(self) -> dict[str, Any]:
        """Returns its values for a line of `metrics.jsonl`."""
        return {
            "checkpoint": self.kind,
            "bytes": self.bytes,
            "checkpoint_seconds": self.seconds,
            "checkpoint_stall_seconds": self.stall_seconds,
            "nonfinite_rows": sum(self.nonfinite_rows.values()),
        }


class AbandonedError(Exception):
    """The run ends at once, or another rank has failed."""


EXPECTED = (OSError, HotrowError, MemoryError)
"""What may end a writing without being a defect."""


def no_room(needed: int, free: int, path: Path) -> str:
    """Returns the reason for not writing to a disk with too little free space."""
    return f"{needed:,} bytes needed, {free:,} free at {path}; make room, or lower checkpoint.keep"


def as_failure(err: BaseException) -> HotrowError:
    """Returns an exception of `EXPECTED` as a `HotrowError`."""
    if isinstance(err, HotrowError):
        return err
    if isinstance(err, OSError):
        return HotrowError(f"{err.filename or 'the disk'}: {err.strerror or err}")
    return ResourceExhaustedError(f"out of memory: {err}")
