"""The priority of threads that work beside requests, or beside training steps."""

from __future__ import annotations

import contextlib
import os
import threading

# A third of the weight of a thread that answers requests or trains: a busy machine delays a cut.
_NICE = 5


def lower_priority() -> None:
    """Lowers the priority of this thread, and of threads that it starts.

    A real-time policy, with which the process was started, ends for them.
    """
    # A thread of Linux has a priority of its own. A sandbox may forbid the calls.
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):
        if os.sched_getscheduler(thread) in (os.SCHED_FIFO, os.SCHED_RR):
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, thread, _NICE)
