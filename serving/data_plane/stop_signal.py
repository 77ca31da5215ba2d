"""SIGTERM and SIGINT as something that a thread can wait for."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType


class StopSignal:
    """Whether SIGTERM or SIGINT arrived.

    Python runs a handler between two bytecodes of the main thread. A `threading.Event` is not safe
    there: that thread may hold the event's own lock, because it is about to wait, and `set` then
    waits for it forever. This class takes no lock.

    Nor does a signal always interrupt what the main thread waits for: it may arrive after the last
    bytecode before that call, or in another thread. So each signal is a byte in a pipe, written
    before Python runs the handler, and waits are waits for the pipe.

    Args:
        then: called with the number of each signal; it must take no lock either.
    """

    def __init__(self, then: Callable[[int], None]) -> None:
        """Installs the handlers. Call it in the main thread."""
        self._then = then
        self._arrived = False
        self._descriptor, written = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # A full pipe is readable: nothing is lost.
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def is_set(self) -> bool:
        """Returns whether one arrived."""
        return self._arrived

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Waits up to the timeout; returns whether a signal arrived."""
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while not self._arrived:
            left = None if end is None else max(end - time.monotonic(), 0.0)
            if not self.wait_for_any(left):
                break
        return self._arrived

    def wait_for_any(self, timeout_seconds: float | None = None) -> bool:
        """Waits for the next signal that has a handler; returns whether it arrived in time.

        Returns at once if one arrived since the last wait.
        """
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if not poll.poll(None if timeout_seconds is None else 1000 * timeout_seconds):
            return False
        os.read(self._descriptor, 1 << 12)
        return True

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._arrived = True
        self._then(number)
