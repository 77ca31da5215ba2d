"""Growing pauses between retries, with a time limit."""

from __future__ import annotations

import time

from hotrow.store.redis.refusals import refusal
from hotrow.store.url import StoreUrl

_FIRST_SECONDS = 0.01
_LONGEST_SECONDS = 0.5


class Waiting:
    """The retry state of one call."""

    def __init__(self, url: StoreUrl, patience_seconds: float) -> None:
        self._url = url
        self._patience_seconds = patience_seconds
        self.begin_anew()

    def begin_anew(self) -> None:
        """Restarts the time limit after a success."""
        self._end = time.monotonic() + self._patience_seconds
        self._next = _FIRST_SECONDS

    def check(self, err: Exception) -> None:
        """Raises Hotrow's error for the last failure if the time limit has passed."""
        if time.monotonic() >= self._end:
            raise refusal(self._url, err) from err

    def pause(self, err: Exception) -> None:
        """Waits before a retry, or raises as `check` does."""
        self.check(err)
        time.sleep(self._next)
        self._next = min(2 * self._next, _LONGEST_SECONDS)
