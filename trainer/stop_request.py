"""Turns SIGINT and SIGTERM into a request that a loop handles between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """A context in which the first signal only sets `number`; a second one has its usual effect.

    Outside the main thread, where Python allows no handlers, it does nothing.

    Attributes:
        number: number of the signal that arrived, or None.
    """

    def __init__(self) -> None:
        """Starts without a signal."""
        self.number: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        """Installs the handlers."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in _SIGNALS}
            for number in _SIGNALS:
                signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the previous handlers."""
        self._restore()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
