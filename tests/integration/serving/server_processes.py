"""The processes behind `platform serve`, found by their parents."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def control_of(server: Any) -> int:
    """Returns the control process of a server."""
    (number,) = _children(server.process.pid, "python")
    return number


def data_plane_of(server: Any) -> int:
    """Returns the process of a server that answers predictions.

    It is a child of the control process, or of the supervisor when that one has ended.
    """
    found = _children(server.process.pid, "hotrow-server")
    for control in _children(server.process.pid, "python"):
        found += _children(control, "hotrow-server")
    (number,) = found
    return number


def _children(parent: int, name: str) -> list[int]:
    return [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if _parent(folder) == parent and _name(folder).startswith(name)
    ]


def _name(folder: Path) -> str:
    """Returns the name of a process; "" when it has ended."""
    try:
        return (folder / "comm").read_text()
    except OSError:
        return ""


def _parent(folder: Path) -> int:
    """Returns the parent of a process; -1 when it has ended."""
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1
