"""A rank that `platform train --workers` started: it reports to its launcher, and ends with it."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from pathlib import Path

from hotrow.atomic_text import write_atomically

LAUNCHER = "HOTROW_LAUNCHER"
"""Set by the launcher for its ranks: its process id and the directory that they write to."""


def pids(folder: Path, of: str = "pid") -> dict[int, int]:
    """Returns the ranks by process id; of="keeper": by id of the process that started each."""
    return {
        int(path.read_text()): int(path.suffix[1:])
        for path in folder.glob(f"{of}.[0-9]*")
        if path.stat().st_size
    }


def killed(folder: Path) -> list[tuple[int, int]]:
    """Returns rank and signal of each rank that a signal killed, the first to die first."""
    found = []
    for path in folder.glob("killed.[0-9]*"):
        number, nanoseconds = path.read_text().split()
        found.append((int(nanoseconds), int(path.suffix[1:]), int(number)))
    return [(rank, number) for _, rank, number in sorted(found)]


def record_keeper() -> None:
    """Records this process as the parent of the rank that mpiexec started."""
    _record("keeper", str(os.getpid()))


def record_killed(number: int) -> None:
    """Records that a signal killed this process's rank, and when."""
    _record("killed", f"{number} {time.monotonic_ns()}")


def _record(what: str, text: str) -> None:
    rank = os.environ.get("PMI_RANK", "")
    _, _, folder = os.environ.get(LAUNCHER, "").partition(":")
    if folder and rank.isdecimal():
        write_atomically(Path(folder) / f"{what}.{rank}", text)


def exit_codes(folder: Path) -> dict[int, int]:
    """Returns the exit codes of the ranks that ended by themselves, by rank."""
    return {int(path.suffix[1:]): int(path.read_text() or 0) for path in folder.glob("exit.[0-9]*")}


class Launched:
    """A rank's link to its launcher; does nothing if another program started the rank."""

    def __init__(self, rank: int) -> None:
        """Registers this process with the launcher; it ends when the launcher does.

        Args:
            rank: this one's number.
        """
        self._rank = rank
        self._folder: Path | None = None
        launcher, _, folder = os.environ.get(LAUNCHER, "").partition(":")
        if not launcher:
            return
        self._folder = Path(folder)
        try:
            descriptor = os.pidfd_open(int(launcher))
        except ProcessLookupError:
            os.kill(os.getpid(), signal.SIGKILL)
            return
        watch = threading.Thread(target=_end_with, args=(descriptor,), daemon=True)
        watch.start()
        self._write("pid", os.getpid())

    def ended(self, exit_code: int) -> None:
        """Reports to the launcher how this rank ends."""
        self._write("exit", exit_code)

    def _write(self, what: str, number: int) -> None:
        if self._folder is not None:
            write_atomically(self._folder / f"{what}.{self._rank}", str(number))


def _end_with(process: int) -> None:
    """Waits for the end of a process, then ends this one."""
    select.select([process], [], [])
    os.kill(os.getpid(), signal.SIGKILL)
