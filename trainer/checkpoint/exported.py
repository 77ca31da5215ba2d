"""Which checkpoints of a run were exported last: they stay, so that a full export can go back."""

from __future__ import annotations

import json
from pathlib import Path

EXPORTED = "exported.json"
"""Names the steps that were exported last, beside the checkpoints."""

KEPT = 2
"""Exported checkpoints that stay: the one that is served, and the one before it."""


def exported_steps(checkpoints: Path) -> list[int]:
    """Returns the steps that were exported last, the newest export at the end.

    Args:
        checkpoints: the folder of a run's checkpoints.

    Returns:
        At most `KEPT` steps; none where the note is absent or unreadable.
    """
    try:
        found = json.loads((checkpoints / EXPORTED).read_text(encoding="utf-8"))
        return [int(step) for step in found["steps"]][-KEPT:]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def note_exported(checkpoints: Path, step: int) -> None:
    """Notes that the checkpoint of a step was exported; one that was noted moves to the end.

    Raises:
        OSError: the disk is full, or the run may not be written.
    """
    steps = [known for known in exported_steps(checkpoints) if known != step]
    unfinished = checkpoints / f".{EXPORTED}"
    text = json.dumps({"steps": [*steps, step][-KEPT:]})
    unfinished.write_text(text + "\n", encoding="utf-8")
    unfinished.replace(checkpoints / EXPORTED)
