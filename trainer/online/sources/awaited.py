"""`AwaitedPartitions`: a source that need not answer yet when it is opened."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping

from hotrow.errors import UnavailableError
from hotrow.trainer.online.decoder import Decoder
from hotrow.trainer.online.partitions import Offset, Partitions, Polled
from hotrow.trainer.online.source import Events, Lag

_PAUSE_SECONDS = 1.0


class AwaitedPartitions:
    """The partitions of a source; until it answers for the first time, there are no events.

    Args:
        connect: connects to the source; see `open_source` for what it raises.
        decoder: of the run.
        report: called with a line for who runs the trainer.
    """

    def __init__(
        self, connect: Callable[[], Partitions], decoder: Decoder, report: Callable[[str], None]
    ) -> None:
        """Connects, if the source answers.

        Raises:
            HotrowError: as `connect`, except UnavailableError.
        """
        self._connect = connect
        self._decoder = decoder
        self._report = report
        self._partitions: Partitions | None = None
        self._asked = -math.inf
        self._failure: UnavailableError | None = None  # of the last try
        self._try()

    def poll(
        self, offsets: Mapping[str, Offset], busy: Collection[str], wait_seconds: float
    ) -> Polled:
        """See `Partitions`."""
        if self._partitions is None:
            time.sleep(min(wait_seconds, max(0.0, self._asked + _PAUSE_SECONDS - time.monotonic())))
            self._try()
        if self._partitions is None:
            return Polled(away=True)
        return self._partitions.poll(offsets, busy, wait_seconds)

    def no_events(self) -> Events:
        """See `Partitions`."""
        return self._decoder.no_events()

    def lag(self, offsets: Mapping[str, Offset]) -> Lag:
        """See `Partitions`."""
        if self._partitions is not None:
            return self._partitions.lag(offsets)
        assert self._failure is not None
        raise self._failure.with_traceback(None)  # else it grows

    def note_saved(self, offsets: Mapping[str, Offset]) -> None:
        """See `Partitions`."""
        if self._partitions is not None:
            self._partitions.note_saved(offsets)

    def close(self) -> None:
        """See `Partitions`."""
        if self._partitions is not None:
            self._partitions.close()

    def _try(self) -> None:
        if time.monotonic() < self._asked + _PAUSE_SECONDS:
            return
        try:
            self._partitions = self._connect()
        except UnavailableError as err:
            if self._failure is None:
                self._report(f"online.source: no events until it answers: {err}")
            self._failure = err
        else:
            if self._failure is not None:
                self._report("online.source answers")
        self._asked = time.monotonic()
