"""Where events come from, and how far they were read.

N events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Position = dict[str, Any]
"""How far each partition of a source was read, as JSON values; {}: nothing was read."""


@dataclass(frozen=True, eq=False)
class Events:
    """Events in the order in which they were read.

    Attributes:
        rows: N rows with the columns that the run reads, as `DataFile.record_batches` yields them.
        times: float64 [N], event times in Unix seconds.
        counts: how many of them each partition has, if the source read them.
        starts: the beginnings of partitions that were new, for a position to read them again from.
    """

    rows: pa.RecordBatch
    times: npt.NDArray[np.float64]
    counts: Mapping[str, int] = field(default_factory=dict)
    starts: Position = field(default_factory=dict)


@dataclass(frozen=True)
class Lag:
    """How far a reader is behind the end of a source.

    Attributes:
        events: number of events that were not read; None: the source does not know.
        seconds: age of the oldest of them, or 0 if there is none; None: not known.
    """

    events: int | None = None
    seconds: float | None = None


class Source(Protocol):
    """Partitions of events, each of which can be read again from any position."""

    def read(
        self, position: Position, most: int, wait_seconds: float
    ) -> tuple[Events, Position] | None:
        """Returns the events after a position, and the position behind them.

        Equal positions give equal events, as far as the source still has them. Bad events are left
        out and go to the dead letters; their positions are passed.

        Args:
            position: from where to read; {}: from the beginning.
            most: at most this many events.
            wait_seconds: how long to wait for the first event; no events are returned after that.

        Returns:
            None at the end of a source that ends.

        Raises:
            DataLossError: the source has deleted events that were not read yet.
            UnavailableError: the source does not answer.
        """

    def read_again(self, position: Position, counts: Mapping[str, int]) -> tuple[Events, Position]:
        """Returns the events of an earlier `read` in the same order, and the position behind them.

        Bad events among them do not go to the dead letters once more.

        Args:
            position: from where that one read; with the `starts` of all since then.
            counts: the `counts` of its events; or the sum of those of consecutive reads, if all
                have events of one and the same partition only.

        Raises:
            DataLossError: the source has deleted some of them.
            UnavailableError: the source does not answer.
        """

    def lag(self, position: Position) -> Lag:
        """Returns how far a reader at a position is behind.

        Raises:
            UnavailableError: the source does not answer.
        """

    def note_saved(self, position: Position) -> None:
        """Notes that a checkpoint has a position: consumer groups move there. Never needed."""

    def close(self) -> None:
        """Closes connections and files."""


@dataclass(frozen=True, eq=False)
class TrainingEvents:
    """The events of one training batch, with labels.

    Attributes:
        rows: N rows, at most `data.batch_size`.
        newest: time of the newest event so far in the stream, Unix seconds; NaN before the first.
        position: where the stream goes on after them.
    """

    rows: pa.RecordBatch
    newest: float
    position: Position


class EventStream(Protocol):
    """Batches of labelled events from a source, joined with late labels if configured."""

    def next(self, wait_seconds: float) -> TrainingEvents | None:
        """Returns the next batch; one without rows if there is none within `wait_seconds`.

        A batch is full unless `online.max_batch_seconds` have passed since its first event, or the
        source has ended.

        Returns:
            None at the end of a source that ends.
        """

    def encode(self, rows: pa.RecordBatch) -> Any:
        """Returns rows as a `hotrow.trainer.data.Batch`."""

    def lag(self) -> Lag:
        """Returns how far the last batch was behind the end of the source, a moment ago.

        It never waits: unknown until the source has answered.

        Raises:
            UnavailableError: the source does not answer.
        """

    def counts(self) -> dict[str, int]:
        """Returns totals since the start.

        These are `events`, `bad`, `late`, `joined`, `expired`, `early` and `unmatched`. joined:
        labels that met their row; expired: rows without label after the window; early: rows trained
        as negatives before their time, for want of room; unmatched: labels without a row.
        """

    def note_saved(self, position: Position) -> None:
        """See `Source.note_saved`."""

    def close(self) -> None:
        """Closes the source."""
