"""The process of `hotrow-server`, started by this control process or by a previous one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from pathlib import Path

import hotrow
from hotrow.errors import FailedPreconditionError
from hotrow.serving.data_plane.exit_text import exit_text
from hotrow.serving.wire.tensorflow_protos import tensorflow_folder
from hotrow.store.access import PASSWORD_VARIABLE

# By default TensorFlow's allocator of large tensors keeps freed memory, so the memory of an
# unloaded version would not be released.
_ENVIRONMENT = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}


class ServerProcess:
    """A process that may be no child of this one.

    Attributes:
        pid: its number.
    """

    def __init__(self, pid: int, child: subprocess.Popen[bytes] | None = None) -> None:
        """Takes over a process.

        Raises:
            ProcessLookupError: no process has that number.
        """
        self.pid = pid
        self._child = child
        self._descriptor = os.pidfd_open(pid)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Waits up to the timeout; returns whether the process has ended."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        ended = bool(poll.poll(None if timeout_seconds is None else 1000 * timeout_seconds))
        if ended and self._child is not None:
            self._child.wait()
        return ended

    def exit_text(self) -> str:
        """Returns how the process ended, as far as known."""
        if self._child is None or self._child.returncode is None:
            return "unknown why"
        return exit_text(self._child.returncode)

    def kill(self) -> None:
        """Kills the process; returns when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        self.wait()


def start_server(socket: Path, greetings: Path, lifeline: int) -> ServerProcess:
    """Starts the executable.

    Args:
        socket: path at which it accepts calls of the control process.
        greetings: a file for TensorFlow's output during the start.
        lifeline: a descriptor; the process ends when it becomes readable.

    Raises:
        FailedPreconditionError: it is not built, or TensorFlow is not installed.
    """
    package = Path(hotrow.__file__).parent
    executable = package / "hotrow-server"
    if not executable.exists():
        raise FailedPreconditionError(f"{executable} is not built; run `make setup`")
    # The password comes with the rows of a version; it is not for ops of a user's model.
    inherited = {n: v for n, v in os.environ.items() if n != PASSWORD_VARIABLE}
    libraries = [str(tensorflow_folder())]
    if "LD_LIBRARY_PATH" in os.environ:
        libraries.append(os.environ["LD_LIBRARY_PATH"])
    socket.unlink(missing_ok=True)
    log = os.dup(2)
    try:
        with greetings.open("wb") as file:
            child = subprocess.Popen(
                [executable, socket, package / "libhotrow_tf.so", str(log), str(lifeline)],
                env={**_ENVIRONMENT, **inherited, "LD_LIBRARY_PATH": ":".join(libraries)},
                stderr=file,
                pass_fds=[log, lifeline],
                # The supervisor handles an interrupt from the terminal.
                process_group=0,
            )
    finally:
        os.close(log)
    return ServerProcess(child.pid, child)
