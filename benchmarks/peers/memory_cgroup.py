"""A memory limit for a process that counts the page cache too: a cgroup of version 1 or 2."""

from __future__ import annotations

import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


class MemoryCgroup:
    """A new memory cgroup; the end of the context removes it.

    Args:
        limit_bytes: for all memory of its processes, including the page cache that they fill.

    Raises:
        OSError: this process may not make one.
    """

    def __init__(self, limit_bytes: int) -> None:
        old = (ROOT / "memory").is_dir()
        self._peak_file = "memory.max_usage_in_bytes" if old else "memory.peak"
        parent = ROOT / "memory" if old else ROOT
        own = parent / _own_path("memory" if old else "").lstrip("/")
        self._directory = (own if old and own.is_dir() else parent) / f"hotrow-{os.getpid()}"
        self._directory.mkdir()
        try:
            limit = "memory.limit_in_bytes" if old else "memory.max"
            (self._directory / limit).write_text(str(limit_bytes))
        except OSError:
            self._directory.rmdir()
            raise

    def __enter__(self) -> MemoryCgroup:
        return self

    def __exit__(self, *_: object) -> None:
        # A process that just ended may still be in it.
        for attempt in range(50):
            try:
                self._directory.rmdir()
                return
            except OSError:
                if attempt == 49:
                    raise
                time.sleep(0.1)

    def enter(self) -> None:
        """Moves the calling process into it; for `preexec_fn`."""
        (self._directory / "cgroup.procs").write_text(str(os.getpid()))

    def peak_bytes(self) -> int | None:
        """Returns the most memory that was in use, page cache included; None: not known."""
        path = self._directory / self._peak_file
        return int(path.read_text()) if path.exists() else None


def _own_path(controller: str) -> str:
    """Returns the cgroup of this process for a controller, "" for version 2."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    return ""
