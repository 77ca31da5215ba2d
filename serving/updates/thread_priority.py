"""The priority of threads that work beside requests."""

from __future__ import annotations

import contextlib
import os
import threading

# A third of the weight of a thread that answers requests: a busy machine delays a cut, not them.
_NICE = 5


def lower_priority() -> None:
    """Lowers the priority of this thread, and of threads that it starts."""
    # A thread of Linux has a priority of its own. A sandbox may forbid the call.
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
