"""The outermost process of `platform serve`: starts the control process, restarts it on a crash.

The executable that answers predictions is a child of the control process and outlives it; the next
control process finds it through a shared folder. All of them end with this process: they hold the
read end of a pipe, and only this process holds the write end.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotrow.serving.data_plane.exit_text import exit_text
from hotrow.serving.data_plane.private_folder import private_folder, remove_left_folders
from hotrow.serving.data_plane.stop_signal import StopSignal
from hotrow.serving.monitoring.log_relay import LogRelay

_LOG = logging.getLogger(__name__)

_SERVING = "serving"
# After a crash, and again while it keeps crashing.
_RESTART_SECONDS = (0.1, 0.5, 2.0, 5.0)
# After a run of this length, pauses begin with the shortest again.
_STABLE_SECONDS = 60.0
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Supervision:
    """What a control process gets from its supervisor.

    Attributes:
        folder: for sockets; its files outlive a control process.
        lifeline: a descriptor that is readable once the supervisor has ended.
    """

    folder: Path
    lifeline: int

    def server(self) -> str:
        """Returns a name that only the control processes of this supervisor have."""
        return f"{socket.gethostname()}-{self.folder.name}"

    def is_resumed(self) -> bool:
        """Whether a previous control process has served."""
        return (self.folder / _SERVING).exists()

    def has_begun_to_serve(self) -> None:
        """Marks the start as done: after a crash from now on the supervisor restarts it."""
        (self.folder / _SERVING).touch()

    def end_with_supervisor(self) -> None:
        """Ends this process when the supervisor has ended."""

        def wait() -> None:
            os.read(self.lifeline, 1)
            os._exit(1)

        threading.Thread(target=wait, name="lifeline", daemon=True).start()


def supervise(command: Callable[[Supervision], Sequence[str]], log_format: str) -> int:
    """Runs a control process until it ends by itself or by a signal to this process.

    Args:
        command: returns a program and its arguments for a supervision.
        log_format: format of standard error of its processes; TEXT or JSON of `log_line`.

    Returns:
        Its exit code.
    """
    lifeline, _held = os.pipe()
    # Orphaned executables become children of this process, which reaps them.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    relay = LogRelay(log_format)
    relay.take_over_logging()
    with contextlib.closing(relay), private_folder() as folder:
        for left in remove_left_folders():
            _LOG.info(f"{left}, which a server that was killed left, is removed")
        supervision = Supervision(folder, lifeline)
        running: list[int] = []

        def pass_on(number: int) -> None:
            for process in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGTERM)

        stopping = StopSignal(pass_on)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # it wakes `_wait_for`
        crashes = 0
        while True:
            started = time.monotonic()
            process = subprocess.Popen(
                command(supervision), pass_fds=[lifeline], stderr=relay.descriptor
            )
            running[:] = [process.pid]
            if stopping.is_set():
                process.terminate()
            code = _wait_for(process, stopping)
            running.clear()
            crashed = code != 0 and supervision.is_resumed()
            if stopping.is_set() or not crashed:
                return code if code >= 0 else 128 - code
            if time.monotonic() - started > _STABLE_SECONDS:
                crashes = 0
            pause = _RESTART_SECONDS[min(crashes, len(_RESTART_SECONDS) - 1)]
            crashes += 1
            _LOG.error(
                f"the control process ended ({exit_text(code)}); predictions go on, starting it "
                f"again in {pause:g} s"
            )
            stopping.wait(pause)
            if stopping.is_set():
                return 0


def _wait_for(process: subprocess.Popen[bytes], stopping: StopSignal) -> int:
    """Returns a process's exit code; reaps other children that end meanwhile."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            stopping.wait_for_any()
        elif pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode


def as_arguments(supervision: Supervision) -> list[str]:
    """Returns the flags that pass a supervision to a control process."""
    return [f"--control_folder={supervision.folder}", f"--lifeline={supervision.lifeline}"]


def this_command(arguments: Sequence[str]) -> list[str]:
    """Returns the command that runs `platform` with these arguments again."""
    return [sys.executable, "-m", "hotrow.cli.main", *arguments]
