"""A rank as the child of a process that records how it was killed, for the launcher.

When a rank is killed, mpiexec kills the others and reports one of all that ended. This process
records the signal before mpiexec can see it: it ends only then, by the same signal. Where mpiexec
ends a rank it kills this process, which records nothing, and the rank ends with it.
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
    """Runs the command `platform` in a child process and ends as that does."""
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
    """Lets this process be killed when its parent, of this process id, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
