"""The memory that a rank may fill with rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from hotrow.ops.ranks import Ranks
from hotrow.trainer.agreement import gathered

ROWS_SHARE = 0.8
"""Share for rows. While tables grow they take up to 1.15 times their bytes, and a checkpoint copies
up to a tenth of them; batches and dense weights are beside them."""

_UNLIMITED = 1 << 60
_LIMITS = (
    # Hierarchy of /proc/self/cgroup, folder, limit, usage, reclaimable part of the usage.
    ("memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ("", "", "memory.max", "memory.current", "inactive_file"),
)


def row_budget_bytes(ranks: Ranks) -> float | None:
    """Returns the bytes of rows that every rank may hold; None where nothing shows it.

    It is `ROWS_SHARE` of the memory that is free now, on the rank with the least. Ranks of a
    machine share its MemAvailable equally, and ranks of a cgroup share what its limit leaves. A
    collective.
    """
    least = least_of_a_rank(gathered(ranks, "memory of the ranks", free_memory()))
    return None if least is None else ROWS_SHARE * least


def least_of_a_rank(free: Sequence[Mapping[str, int]]) -> float | None:
    """Returns the least bytes that a rank may take; None if no rank has a bound.

    Args:
        free: of each rank, the free bytes by what has them, as `free_memory` returns them.
    """
    sharing = Counter(name for own in free for name in own)
    return min((left / sharing[name] for own in free for name, left in own.items()), default=None)


def free_memory(root: Path = Path("/")) -> dict[str, int]:
    """Returns the free bytes of this machine, and of each cgroup of this process with a limit.

    File pages that the kernel may drop count as free.

    Args:
        root: folder that has `proc` and `sys`.

    Returns:
        By names that are equal on all ranks that share the memory.
    """
    machine = _text(root / "proc/sys/kernel/random/boot_id").strip()
    free = {}
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free[machine] = 1024 * int(line.split()[1])
    space = f"{machine}/{_link(root / 'proc/self/ns/cgroup')}"
    for folder, left in _cgroups(root):
        free[f"{space}/{folder}"] = left
    return free


def _cgroups(root: Path) -> Iterator[tuple[Path, int]]:
    """Yields each cgroup of this process that has a limit, and the bytes that it leaves."""
    own = dict(line.split(":")[1:] for line in _text(root / "proc/self/cgroup").splitlines())
    for hierarchy, mount, limit, usage, reclaimable in _LIMITS:
        if hierarchy not in own:
            continue
        path = PurePosixPath(own[hierarchy]).relative_to("/")
        for place in (path, *path.parents):  # a limit holds for everything below it
            folder = root / "sys/fs/cgroup" / mount / place
            most, used = _text(folder / limit).strip(), _text(folder / usage).strip()
            if not (most.isdigit() and used.isdigit()) or int(most) >= _UNLIMITED:
                continue
            fields = (line.split() for line in _text(folder / "memory.stat").splitlines())
            cached = {name: int(value) for name, value in fields}.get(reclaimable, 0)
            yield folder, max(0, int(most) - int(used) + cached)


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
