"""A rank that `platform train --workers` has started: it tells its launcher, and ends with it."""

from __future__ import annotations

import os
import select
import signal
import threading
from pathlib import Path

LAUNCHER = "HOTROW_LAUNCHER"
"""Set by the launcher for its ranks: its process id and the directory that they write to."""


def pids(folder: Path) -> dict[int, int]:
    """Returns the ranks by process id."""
    return {
        int(path.read_text()): int(path.suffix[1:])
        for path in folder.glob("pid.[0-9]*")
        if path.stat().st_size
    }


def exit_codes(folder: Path) -> dict[int, int]:
    """Returns the exit codes of the ranks that came to their end by themselves, by rank."""
    return {int(path.suffix[1:]): int(path.read_text() or 0) for path in folder.glob("exit.[0-9]*")}


class Launched:
    """This rank's side; nothing happens if it was started otherwise."""

    def __init__(self, rank: int) -> None:
        """Tells the launcher of this process, which ends when the launcher does.

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
        """Tells the launcher how this rank ends."""
        self._write("exit", exit_code)

    def _write(self, what: str, number: int) -> None:
        if self._folder is not None:
            unfinished = self._folder / f".{what}.{self._rank}"
            unfinished.write_text(str(number))
            unfinished.rename(self._folder / f"{what}.{self._rank}")


def _end_with(process: int) -> None:
    """Waits for the end of a process, then ends this one."""
    select.select([process], [], [])
    os.kill(os.getpid(), signal.SIGKILL)
