"""The last exported checkpoints of a run: they are kept, so that a full export can use them."""

from __future__ import annotations

import json
from pathlib import Path

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


def note_exported(checkpoints: Path, step: int) -> None:
    """Records that the checkpoint of a step was exported; a recorded step moves to the end.

    Raises:
        OSError: the disk is full, or the run directory is not writable.
    """
    steps = [known for known in exported_steps(checkpoints) if known != step]
    unfinished = checkpoints / f".{EXPORTED}"
    text = json.dumps({"steps": [*steps, step][-KEPT:]})
    unfinished.write_text(text + "\n", encoding="utf-8")
    unfinished.replace(checkpoints / EXPORTED)
