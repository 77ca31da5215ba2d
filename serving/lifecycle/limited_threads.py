"""Threads for loading and unloading, a limited number at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable


class LimitedThreads:
    """Runs each piece of work in a thread of its own; the rest waits for its turn.

    Args:
        name: of the threads.
        most: how many work at a time; 0 means no limit.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._running = 0
        self._changed = threading.Condition()

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        with self._changed:
            return self._most > 0

    def set_most(self, most: int) -> None:
        """Changes how many work at a time; running work continues."""
        with self._changed:
            self._most = most
            self._changed.notify_all()

    def run(self, work: Callable[[], None]) -> None:
        """Begins the work as soon as the limit allows, and returns at once."""
        threading.Thread(target=self._run, args=[work], name=self._name, daemon=True).start()

    def _run(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._most or self._running < self._most)
            self._running += 1
        try:
            work()
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()
