"""Pauses between tries, which grow, and an end to them."""

from __future__ import annotations

import time

from hotrow.store.redis.refusals import refusal
from hotrow.store.url import StoreUrl

_FIRST_SECONDS = 0.01
_LONGEST_SECONDS = 0.5


class Waiting:
    """How long one call goes on trying."""

    def __init__(self, url: StoreUrl, patience_seconds: float) -> None:
        self._url = url
        self._patience_seconds = patience_seconds
        self.begin_anew()

    def begin_anew(self) -> None:
        """Notes that something succeeded."""
        self._end = time.monotonic() + self._patience_seconds
        self._next = _FIRST_SECONDS

    def check(self, err: Exception) -> None:
        """Raises Hotrow's error for what went wrong last, if the time is over."""
        if time.monotonic() >= self._end:
            raise refusal(self._url, err) from err

    def pause(self, err: Exception) -> None:
        """Waits, or raises as `check` does."""
        self.check(err)
        time.sleep(self._next)
        self._next = min(2 * self._next, _LONGEST_SECONDS)
