"""`Watermark`: the newest event time so far, and which events are late. N events."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hotrow.config import OnlineConfig
from hotrow.trainer.online.dead_letters import DeadLetters
from hotrow.trainer.online.event_times import Times
from hotrow.trainer.online.source import Events, Position


class Admitted(NamedTuple):
    """Events, and the newest event time at each.

    Attributes:
        events: N events.
        newest: float64 [N].
    """

    events: Events
    newest: Times


class Watermark:
    """Follows event time. Events decide about it and nothing else, so a replay decides alike.

    Attributes:
        newest: Unix seconds; NaN before the first event.
        late: number of late events since the start.
    """

    def __init__(self, online: OnlineConfig, dead_letters: DeadLetters) -> None:
        """Starts before the first event."""
        self._late_seconds = online.late_seconds
        self._is_dropped = online.late == "dead_letter"
        self._dead_letters = dead_letters
        self.newest = math.nan
        self.late = 0

    def admit(self, events: Events, position: Position, again: bool = False) -> Admitted:
        """Returns events in order, without late ones if these go to the dead letters.

        An event is late if it is more than `online.late_seconds` older than the newest before it.

        Args:
            events: N events.
            position: where they were read, for the dead letters.
            again: they were read before, so nothing is counted and no letter written.
        """
        if not len(events.times):
            return Admitted(events, events.times)
        newest = np.fmax.accumulate(np.concatenate([[self.newest], events.times]))
        self.newest = float(newest[-1])
        admitted = Admitted(events, newest[1:])
        if self._late_seconds is None:
            return admitted
        late = events.times < newest[:-1] - self._late_seconds  # False before the first event
        if not late.any():
            return admitted
        if not again:
            self.late += int(late.sum())
        if not self._is_dropped:
            return admitted
        for index in np.flatnonzero(late).tolist() if not again else ():
            seconds = newest[index] - events.times[index]
            reason = f"is {seconds:,.3f} s older than the newest; online.late_seconds is "
            self._dead_letters.add(
                "late",
                f"{reason}{self._late_seconds:g}",
                {"read_from": position},
                row_values(events.rows, index) | {"time": float(events.times[index])},
            )
        kept = ~late
        rows = events.rows.filter(pa.array(kept))
        return Admitted(Events(rows, events.times[kept], events.counts), newest[1:][kept])


def row_values(rows: pa.RecordBatch, index: int) -> dict[str, Any]:
    """Returns the values of a row by column."""
    values: dict[str, Any] = rows.slice(index, 1).to_pylist()[0]
    return values
