"""The last exported checkpoints of a run.

They are kept, so that a full export can use them. Tables keep the tombstones since then, so that an
incremental export can go on from them.
"""

from __future__ import annotations

import json
from pathlib import Path

from hotrow.atomic_text import write_atomically
from hotrow.errors import DataLossError
from hotrow.sealed_directory import read_manifest
from hotrow.trainer.checkpoint.stored import name_of

EXPORTED = "exported.json"
"""Names the steps that were exported last, beside the checkpoints."""

KEPT = 2
"""Exported checkpoints that stay: the one that is served, and the one before it."""


def exported_steps(checkpoints: Path) -> list[int]:
    """Returns the steps of the last exported checkpoints, the newest export last.

    Args:
        checkpoints: the folder of a run's checkpoints.

    Returns:
        At most `KEPT` steps; none if the file is absent or unreadable.
    """
    try:
        found = json.loads((checkpoints / EXPORTED).read_text(encoding="utf-8"))
        return [int(step) for step in found["steps"]][-KEPT:]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def exported_clocks(checkpoints: Path) -> dict[str, int] | None:
    """Returns, by table, the clock from which incremental exports may still go on.

    Args:
        checkpoints: the folder of a run's checkpoints.

    Returns:
        None if no export is recorded; nothing of any table if the checkpoint of a recorded export
        is not there or damaged.
    """
    steps = exported_steps(checkpoints)
    if not steps:
        return None
    clocks: dict[str, int] = {}
    for step in steps:
        try:
            tables = read_manifest(checkpoints / name_of(step))["tables"]
            for name, entry in tables.items():
                clocks[name] = min(int(entry["step"]), clocks.get(name, int(entry["step"])))
        except (DataLossError, AttributeError, KeyError, TypeError, ValueError):
            return {}
    return clocks


def note_exported(checkpoints: Path, step: int) -> None:
    """Records that the checkpoint of a step was exported; a recorded step moves to the end.

    Raises:
        OSError: the disk is full, or the run directory is not writable.
    """
    steps = [known for known in exported_steps(checkpoints) if known != step]
    text = json.dumps({"steps": [*steps, step][-KEPT:]})
    write_atomically(checkpoints / EXPORTED, text + "\n")
