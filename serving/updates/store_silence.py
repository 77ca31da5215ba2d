"""Reports when a store has not answered for long, and when it answers again."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from hotrow.errors import HotrowError

# Time without an answer; longer than reads take when all is well.
_SILENT_SECONDS = 1.0
_LOOK_SECONDS = 0.1


class StoreSilence:
    """A thread that watches how long calls have waited for a store, until it is closed.

    Args:
        report: called with whether the store is silent, first when that is known and then at each
            change; called again while it raises a `HotrowError`.
    """

    def __init__(self, report: Callable[[bool], None]) -> None:
        self._report = report
        self._reported: bool | None = None
        self._asked = False
        self._since: float | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="store-silence", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Surrounds each wait for the store; a wait that raises counts as still waiting."""
        with self._lock:
            self._asked = True
            if self._since is None:
                self._since = time.monotonic()
        yield
        with self._lock:
            self._since = None

    def is_silent(self) -> bool | None:
        """Returns whether the store is silent; None: no call has waited long enough to know."""
        with self._lock:
            if self._since is not None and time.monotonic() - self._since > _SILENT_SECONDS:
                return True
            return False if self._asked and self._since is None else self._reported

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            silent = self.is_silent()
            if silent is None or silent == self._reported:
                continue
            with contextlib.suppress(HotrowError):
                self._report(silent)
                self._reported = silent
