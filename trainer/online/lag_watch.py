"""`LagWatch`: how far the trainer is behind, without waiting for the source to answer."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

from hotrow.errors import HotrowError
from hotrow.trainer.online.source import Lag, Position, Source

_LOOK_SECONDS = 0.5


class LagWatch:
    """Asks a source for its lag in a thread, at most twice a second, while one calls it."""

    def __init__(self, source: Source) -> None:
        """Binds a source."""
        self._source = source
        self._thread = ThreadPoolExecutor(1, "hotrow-lag")
        self._answer: Future[Lag | HotrowError] | None = None
        self._known: Lag | HotrowError = Lag()
        self._asked = 0.0

    def lag(self, position: Position) -> Lag:
        """Returns the newest answer, which is of an earlier call; unknown before the first.

        Args:
            position: how far events were read.

        Raises:
            HotrowError: the newest answer is that the source does not answer, or refuses.
        """
        if self._answer is not None and self._answer.done():
            self._known = self._answer.result()
            self._answer = None
        now = time.monotonic()
        if self._answer is None and now - self._asked >= _LOOK_SECONDS:
            self._asked = now
            self._answer = self._thread.submit(self._ask, position)
        if isinstance(self._known, HotrowError):
            raise self._known.with_traceback(None)  # else it grows
        return self._known

    def close(self) -> None:
        """Waits for the answer that was asked for."""
        self._thread.shutdown()

    def _ask(self, position: Position) -> Lag | HotrowError:
        try:
            return self._source.lag(position)
        except HotrowError as err:
            return err
