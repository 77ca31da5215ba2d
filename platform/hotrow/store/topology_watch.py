"""Keeps native readers up to date about the nodes of a store."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hotrow.errors import HotrowError

# Time between two reads of a store's topology.
_LOOK_SECONDS = 1.0


class TopologyWatch:
    """A thread that reads the topology repeatedly until it is closed.

    Args:
        ask: returns the current topology. While it raises a `HotrowError`, readers continue with
            the known nodes.
        notify: called with each topology that differs from the previous one.
        known: the readers' current topology.
    """

    def __init__(self, ask: Callable[[], str], notify: Callable[[str], None], known: str) -> None:
        self._ask = ask
        self._notify = notify
        self._known = known
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="store-nodes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the thread."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            try:
                now = self._ask()
                if now == self._known:
                    continue
                self._notify(now)
            except HotrowError:
                continue
            self._known = now
