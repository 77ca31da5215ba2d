"""SIGTERM and SIGINT as something that a thread can wait for."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from types import FrameType


class StopSignal:
    """Whether SIGTERM or SIGINT arrived.

    Python runs a handler between two bytecodes of the main thread. A `threading.Event` is not safe
    there: that thread may hold the event's own lock, because it is about to wait, and `set` then
    waits for it forever. This class takes no lock.

    Args:
        then: called with the number of each signal; it must take no lock either.
    """

    def __init__(self, then: Callable[[int], None]) -> None:
        """Installs the handlers. Call it in the main thread."""
        self._then = then
        self._arrived = False
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def is_set(self) -> bool:
        """Returns whether one arrived."""
        return self._arrived

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Waits up to the timeout; returns whether a signal arrived."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(None if timeout_seconds is None else 1000 * timeout_seconds))

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._arrived = True
        os.eventfd_write(self._descriptor, 1)
        self._then(number)
