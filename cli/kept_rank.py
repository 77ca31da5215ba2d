"""Runs a rank as a child process and records which signal killed it, for the launcher.

When a rank is killed, mpiexec kills the other ranks and reports only one of them. This process
records the signal and then ends by the same signal, so mpiexec notices the death only afterwards.
When mpiexec ends a rank, it kills this process: nothing is recorded, and the rank ends with it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from types import FrameType

from hotrow.cli.launched import record_keeper, record_killed

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Runs the command `platform` in a child process and ends in the same way."""
    keeper = os.getpid()
    child = os.fork()  # nothing is imported yet, so there are no other threads
    if child == 0:
        die_with_parent(keeper)
        from hotrow.cli.main import main as platform

        sys.exit(platform())
    record_keeper()

    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        os._exit(code)
    record_killed(-code)
    if -code != signal.SIGKILL:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank's own core is enough
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent, with this process id, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
