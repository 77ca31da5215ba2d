"""`JoinedRows`: rows that wait for their labels, which come later, by `online.join`.

An event without a label is a row, one with a label is the label of the row that has its key. A row
leaves with its label, or as a negative when event time has passed its window, or earlier for want
of room. What leaves follows from the events, their times and their order alone.

Waiting rows are not stored. A position has the one behind which the oldest row that was not trained
was read, how many events of each partition each read had since then, and how many of these rows
were trained. From it the same events are read in the same order, and the same rows leave.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hotrow.config import OnlineConfig
from hotrow.errors import DataLossError, InvalidArgumentError
from hotrow.trainer.online.dead_letters import DeadLetters
from hotrow.trainer.online.event_columns import EventColumns
from hotrow.trainer.online.labelled_rows import as_json, newest_of
from hotrow.trainer.online.read_log import ReadLog
from hotrow.trainer.online.source import Events, Position, Source
from hotrow.trainer.online.waiting_file import WaitingFile
from hotrow.trainer.online.waiting_row import WaitingRow
from hotrow.trainer.online.waiting_rows import WaitingRows, rows_of
from hotrow.trainer.online.watermark import Watermark, row_values

_READ_EVENTS = 4096
_AGAIN_EVENTS = 65_536


@dataclass(frozen=True)
class _Labelled:
    """A row that leaves, and its label."""

    row: WaitingRow
    label: float


class JoinedRows:
    """Rows with the labels that met them; see the module."""

    def __init__(
        self,
        source: Source,
        columns: EventColumns,
        online: OnlineConfig,
        watermark: Watermark,
        dead_letters: DeadLetters,
        waiting_file: Path,
        position: Position,
    ) -> None:
        """Binds a source; the first `read` brings back the rows that wait.

        Args:
            source: where events come from.
            columns: of events; they have a key.
            online: with `join`.
            watermark: of the run; it goes on from the position.
            dead_letters: for labels without a row.
            waiting_file: where rows wait for which memory has no room.
            position: one of `position`; {}: the beginning.

        Raises:
            InvalidArgumentError: rows of the position wait under other settings.
        """
        assert online.join is not None
        join = online.join
        self._source = source
        self._columns = columns
        self._window_seconds = join.window_seconds
        self._watermark = watermark
        self._dead_letters = dead_letters
        self._most_rows = join.most_rows + join.most_disk_rows
        open_file = (lambda: WaitingFile(waiting_file)) if join.most_disk_rows else None
        self._waiting = WaitingRows(join.most_rows, open_file)
        self._leaving: deque[_Labelled] = deque()
        self._skip = 0
        self._settings = {
            "online.join.key": join.key,
            "online.join.window_seconds": join.window_seconds,
            "online.join.most_rows + most_disk_rows": self._most_rows,
            "online.late": online.late,
            "online.late_seconds": online.late_seconds,
        }
        self._start = position
        self._position: Position = position.get("source", {})
        self._is_begun = False
        begun = position.get("join", position)
        self._require_settings(begun)
        watermark.newest = newest_of(begun)
        self._log = ReadLog()
        self._counts = dict.fromkeys(("events", "joined", "expired", "early", "unmatched"), 0)
        self._has_ended = False
        self._is_again = False
        self._starts: Position = {}

    def read(self, most: int, wait_seconds: float) -> pa.RecordBatch | None:
        """See `LabelledRows`."""
        if not self._is_begun:
            self._is_begun = True
            self._bring_back(self._start.get("join", {}))
        if not self._leaving and not self._has_ended:
            found = self._source.read(self._position, _READ_EVENTS, wait_seconds)
            if found is None:
                self._has_ended = True  # no label comes any more
                self._is_again = False
                self._expire(math.inf)
            else:
                events, position = found
                self._take(events, self._position, again=False)
                self._position = position
        if not self._leaving:
            return None if self._has_ended else self._none()
        leaving = [self._leaving.popleft() for _ in range(min(most, len(self._leaving)))]
        for one in leaving:
            self._log.leave(one.row.read)
        rows = rows_of([one.row for one in leaving])
        labels = pa.array([one.label for one in leaving], pa.float32())
        return rows.set_column(
            rows.schema.get_field_index(self._columns.label), self._label, labels
        )

    def position(self) -> Position:
        """See `LabelledRows`."""
        if not self._is_begun:
            return self._start or {"source": {}, "newest": None}
        newest = as_json(self._watermark.newest)
        join = self._log.position()
        if join is None:
            self._starts = {}
            join = {"source": self._position, "newest": newest}
        else:
            # Partitions that were found later are read again from their beginnings.
            known: Position = join["source"]
            self._starts = {key: at for key, at in self._starts.items() if key not in known}
            join["source"] = self._starts | known
        return {
            "source": self._position,
            "newest": newest,
            "join": {**join, "settings": self._settings},
        }

    def counts(self) -> dict[str, int]:
        """See `LabelledRows`."""
        return dict(self._counts)

    def close(self) -> None:
        """Removes the file of waiting rows."""
        self._waiting.close()

    @property
    def _label(self) -> pa.Field:
        return pa.field(self._columns.label, pa.float32())

    def _none(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array([], pa.float32())], schema=pa.schema([self._label])
        )

    def _require_settings(self, begun: Position) -> None:
        """Checks that rows that wait go on waiting by the rules that they began with."""
        before: Mapping[str, Any] = begun.get("settings", {})
        if not begun.get("reads"):
            return
        for name, value in before.items():
            if value != self._settings.get(name):
                raise InvalidArgumentError(
                    f"{name}: rows wait that were read with {value!r}, now it is "
                    f"{self._settings.get(name)!r}; go on with the former value, or begin a new run"
                )

    def _bring_back(self, begun: Position) -> None:
        """Reads again what the rows of a position follow from."""
        self._skip = begun.get("taken", 0)
        position: Position = begun.get("source", {})
        self._starts = dict(position)
        for counts in begun.get("reads", ()):
            for part in _parts(counts):
                events, behind = self._source.read_again(position, part)
                self._take(events, position, again=True)
                position = behind

    def _take(self, events: Events, position: Position, again: bool) -> None:
        """Takes events in order; rows leave.

        Args:
            events: those behind the position.
            position: where they were read.
            again: they were read before, so they are not counted.
        """
        if not len(events.times):
            return
        before = as_json(self._watermark.newest)
        admitted = self._watermark.admit(events, position, again)
        rows, newest = admitted.events.rows, admitted.newest.tolist()
        key, label = rows.column(self._columns.key), rows.column(self._columns.label)
        is_row = pc.is_null(label)
        bodies = rows.filter(is_row).select(
            [name for name in rows.schema.names if name != self._columns.key]
        )
        deadlines = admitted.events.times[is_row.to_numpy(zero_copy_only=False)]
        deadlines = deadlines + self._window_seconds
        self._starts |= events.starts
        read = self._log.begin(position, before, events.counts, len(deadlines))
        self._waiting.begin(read, bodies, key.filter(is_row).to_pylist(), deadlines)
        self._is_again = again
        if self._skip and not again:
            raise DataLossError(
                f"online.join: {self._skip:,} rows that were trained are not among the events that "
                "were read again; were events changed? Bring them back, or begin a new run"
            )
        self._count("events", len(events.times))
        place = 0
        labels = label.to_pylist()
        keys = key.to_pylist()
        for index, value in enumerate(labels):
            now = newest[index]
            if self._waiting.next_deadline < now:
                self._expire(now)
            if value is None:
                self._add(place, float(deadlines[place]) < now)
                place += 1
                continue
            row = self._waiting.take_of(keys[index])
            if row is not None:
                self._count("joined")
                self._leave(row, value)
            else:
                self._count("unmatched")
                if not again:
                    self._dead_letters.add(
                        "label",
                        "no row with this key waits: it is unknown, or left, or has its label",
                        {"read_from": position},
                        row_values(rows.select([self._columns.key, self._columns.label]), index)
                        | {"time": float(admitted.events.times[index])},
                    )
        self._waiting.settle()

    def _add(self, place: int, is_over: bool) -> None:
        """Lets a row wait, or leave at once if its window is over."""
        if is_over:
            self._count("expired")
            self._leave(self._waiting.pass_by(place), 0.0)
            return
        self._waiting.add(place)
        if len(self._waiting) > self._most_rows:
            self._count("early")
            self._leave(self._waiting.take_oldest(), 0.0)

    def _expire(self, newest: float) -> None:
        for row in self._waiting.take_expired(newest):
            self._count("expired")
            self._leave(row, 0.0)

    def _leave(self, row: WaitingRow, label: float) -> None:
        if self._skip:  # it was trained before
            self._skip -= 1
            self._log.leave(row.read)
        else:
            self._leaving.append(_Labelled(row, label))

    def _count(self, name: str, number: int = 1) -> None:
        if not self._is_again:
            self._counts[name] += number


def _parts(counts: Mapping[str, int]) -> list[dict[str, int]]:
    """Returns the counts of reads that may be one; of one partition, in parts."""
    if len(counts) != 1:
        return [dict(counts)]
    ((key, count),) = counts.items()
    starts = range(0, count, _AGAIN_EVENTS)
    return [{key: min(_AGAIN_EVENTS, count - start)} for start in starts]
