"""`LabelledRows`: the rows to train, each with its label, and the position behind any of them."""

from __future__ import annotations

import math
from typing import Protocol

import pyarrow as pa

from hotrow.errors import DataLossError
from hotrow.trainer.online.source import Position, Source
from hotrow.trainer.online.watermark import Watermark


class LabelledRows(Protocol):
    """Rows in the order in which they are trained. One thread reads."""

    def read(self, most: int, wait_seconds: float) -> pa.RecordBatch | None:
        """Returns the next rows; none if there is no event within `wait_seconds`.

        Returns:
            None at the end of a source that ends.

        Raises:
            DataLossError, UnavailableError: as `Source.read`.
        """

    def position(self) -> Position:
        """Returns where the rows go on behind those that `read` returned."""

    def counts(self) -> dict[str, int]:
        """Returns `events`, `joined`, `expired`, `early` and `unmatched`; see `EventStream`."""

    def close(self) -> None:
        """Removes what is needed no more."""


class UnjoinedRows:
    """Events that have their label."""

    def __init__(self, source: Source, watermark: Watermark, position: Position) -> None:
        """Binds a source.

        Args:
            source: where events come from.
            watermark: of the run; it goes on from the position.
            position: one of `position`; {}: the beginning.

        Raises:
            DataLossError: the position is one of a run with `online.join`.
        """
        if "join" in position:
            raise DataLossError(
                "online.join: the checkpoint's position is of a run that joins labels; keep "
                "online.join, or begin a new run"
            )
        self._source = source
        self._watermark = watermark
        self._position: Position = position.get("source", {})
        self._events = 0
        watermark.newest = newest_of(position)

    def read(self, most: int, wait_seconds: float) -> pa.RecordBatch | None:
        """See `LabelledRows`."""
        found = self._source.read(self._position, most, wait_seconds)
        if found is None:
            return None
        events, position = found
        self._events += len(events.times)
        rows = self._watermark.admit(events, self._position).events.rows
        self._position = position
        return rows

    def position(self) -> Position:
        """See `LabelledRows`."""
        return {"source": self._position, "newest": as_json(self._watermark.newest)}

    def counts(self) -> dict[str, int]:
        """See `LabelledRows`."""
        return {"events": self._events, "joined": 0, "expired": 0, "early": 0, "unmatched": 0}

    def close(self) -> None:
        """Does nothing."""


def newest_of(position: Position) -> float:
    """Returns the newest event time of a position; NaN: there was no event."""
    newest = position.get("newest")
    return math.nan if newest is None else float(newest)


def as_json(seconds: float) -> float | None:
    """Returns a time for a position."""
    return None if math.isnan(seconds) else seconds
