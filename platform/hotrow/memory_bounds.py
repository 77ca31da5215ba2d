"""What bounds the memory of this process: the machine, and cgroups of version 1 or 2."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_UNLIMITED = 1 << 60
_LIMITS = (
    # Hierarchy of /proc/self/cgroup, folder, limit, usage, prefix of the fields of memory.stat.
    ("memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ("", "", "memory.max", "memory.current", ""),
)


@dataclass(frozen=True)
class MemoryBound:
    """A bound of this process's memory.

    Attributes:
        key: equal in all processes that share the memory.
        name: for messages: "the machine", or "the cgroup" and its folder.
        most_bytes: the limit.
        free_bytes: what is left of it; file pages that were not used for long count as free.
        active_file_bytes: file pages that were used lately; the kernel drops them, too, before it
            ends a process.
    """

    key: str
    name: str
    most_bytes: int
    free_bytes: int
    active_file_bytes: int = 0


def memory_bounds(root: Path = Path("/")) -> list[MemoryBound]:
    """Returns the bound of the machine, if known, and of each cgroup that has a limit.

    Args:
        root: folder that has `proc` and `sys`.
    """
    machine = _text(root / "proc/sys/kernel/random/boot_id").strip()
    lines = (line.split() for line in _text(root / "proc/meminfo").splitlines())
    memory = {line[0].rstrip(":"): 1024 * int(line[1]) for line in lines if len(line) > 1}
    bounds = []
    if "MemAvailable" in memory:
        free = memory["MemAvailable"]
        bounds.append(MemoryBound(machine, "the machine", memory.get("MemTotal", free), free))
    space = f"{machine}/{_link(root / 'proc/self/ns/cgroup')}"
    for folder, *numbers in _cgroups(root):
        bounds.append(MemoryBound(f"{space}/{folder}", f"the cgroup {folder}", *numbers))
    return bounds


def _cgroups(root: Path) -> Iterator[tuple[Path, int, int, int]]:
    """Yields folder and numbers of each cgroup of this process that has a limit."""
    own = dict(line.split(":")[1:] for line in _text(root / "proc/self/cgroup").splitlines())
    for hierarchy, mount, limit, usage, prefix in _LIMITS:
        if hierarchy not in own:
            continue
        path = PurePosixPath(own[hierarchy]).relative_to("/")
        for place in (path, *path.parents):  # a limit holds for everything below it
            folder = root / "sys/fs/cgroup" / mount / place
            most, used = _text(folder / limit).strip(), _text(folder / usage).strip()
            if not (most.isdigit() and used.isdigit()) or int(most) >= _UNLIMITED:
                continue
            fields = (line.split() for line in _text(folder / "memory.stat").splitlines())
            pages = {name: int(value) for name, value in fields}
            left = int(most) - int(used) + pages.get(f"{prefix}inactive_file", 0)
            yield folder, int(most), max(0, left), pages.get(f"{prefix}active_file", 0)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
