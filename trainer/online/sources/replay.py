"""`ReplayPartitions`: recorded files, whose events come as fast as they did, or faster."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from hotrow.config import DataConfig
from hotrow.errors import DataLossError
from hotrow.trainer.online.dead_letters import DeadLetters
from hotrow.trainer.online.decoder import Decoder
from hotrow.trainer.online.partitions import Chunk, Offset, Offsets, Polled
from hotrow.trainer.online.source import Events, Lag
from hotrow.trainer.online.sources.file_marks import mark_of_whole
from hotrow.trainer.online.sources.row_file import RowFile

_ROWS = "rows"


class ReplayPartitions:
    """The rows of files, one file after the other: one partition, which ends.

    An offset is one of `RowFile` with `file`, the number of the file, and `crc`, its mark.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        speed: float,
        data: DataConfig,
        decoder: Decoder,
        dead_letters: DeadLetters,
    ) -> None:
        """Opens the files.

        Args:
            paths: at least one, in any format of data files.
            speed: times real speed, by event time; infinity: without waiting.
            data: their format.
            decoder: of the run.
            dead_letters: for bad rows.

        Raises:
            NotFoundError, InvalidArgumentError, DataError: as `open_data`.
        """
        self._files = [RowFile(path, data, decoder, dead_letters) for path in paths]
        self._paths = paths
        self._crcs = [mark_of_whole(path).crc for path in paths]
        self._speed = speed
        self._decoder = decoder
        self._at: Offset | None = None
        self._chunks: Iterator[Chunk] = iter(())
        self._held: Chunk | None = None
        self._begun: tuple[float, float] | None = None  # clock and event time of the first event

    def poll(
        self, offsets: Mapping[str, Offset], busy: Collection[str], wait_seconds: float
    ) -> Polled:
        """See `Partitions`."""
        if _ROWS in busy:
            return Polled()
        offset = offsets.get(_ROWS)
        if self._is_end(offset):
            return Polled(ended=True)
        if self._held is None or offset != self._at:
            self._held = self._read(offset)
            self._at = offset
        chunk = self._due(self._held, wait_seconds)
        if chunk is None:
            return Polled()
        whole = len(chunk.behind) == len(self._held.behind)
        self._held = None if whole else _after(self._held, len(chunk.behind))
        self._at = chunk.end
        return Polled({_ROWS: chunk})

    def no_events(self) -> Events:
        """See `Partitions`."""
        return self._decoder.no_events()

    def lag(self, offsets: Mapping[str, Offset]) -> Lag:
        """Returns how far event time is behind; 0 without waiting."""
        return Lag(events=0 if self._is_end(offsets.get(_ROWS)) else None)

    def note_saved(self, offsets: Mapping[str, Offset]) -> None:
        """Does nothing: files have no consumers."""

    def close(self) -> None:
        """Closes files."""
        self._chunks = iter(())
        self._held = None

    def _is_end(self, offset: Offset | None) -> bool:
        return bool(offset and offset["end"] and offset["file"] == len(self._files) - 1)

    def _read(self, offset: Offset | None) -> Chunk:
        """Returns the events behind an offset, which is not the end."""
        if offset != self._at or offset is None:
            self._chunks = self._from(offset)
        return next(self._chunks)

    def _from(self, offset: Offset | None) -> Iterator[Chunk]:
        first = 0 if offset is None else offset["file"]
        if first >= len(self._files) or (offset and offset["crc"] != self._crcs[first]):
            raise DataLossError(
                f"online.source: file {first + 1} of the replay is not the one that was read "
                f"before ({', '.join(map(str, self._paths))}); give the same files in the same "
                "order, or begin a new run"
            )
        for number in range(first, len(self._files)):
            place = {"file": number, "crc": self._crcs[number]}
            rows = None if offset is None or number > first else offset
            if rows is not None and rows["end"]:
                continue
            for chunk in self._files[number].chunks(rows):
                yield Chunk(chunk.events, _placed(chunk.behind, place), chunk.end | place)

    def _due(self, chunk: Chunk, wait_seconds: float) -> Chunk | None:
        """Returns the events of a chunk whose time has come; None: none within `wait_seconds`."""
        times = np.maximum.accumulate(chunk.events.times)
        if math.isinf(self._speed) or not len(times):
            return chunk
        now = time.monotonic()
        if self._begun is None:
            self._begun = now, float(times[0])
        clock, first = self._begun
        wait = (float(times[0]) - first) / self._speed - (now - clock)
        if wait > 0:
            time.sleep(min(wait, wait_seconds))
        reached = first + (time.monotonic() - clock) * self._speed
        due = int(np.searchsorted(times, reached, side="right"))
        if due == len(times):
            return chunk
        return _first(chunk, due) if due else None


def _placed(behind: Sequence[Offset], place: dict[str, int]) -> Sequence[Offset]:
    return Offsets(range(len(behind)), lambda index: behind[index] | place)


def _first(chunk: Chunk, count: int) -> Chunk:
    events = Events(chunk.events.rows.slice(0, count), chunk.events.times[:count])
    return Chunk(events, chunk.behind[:count], chunk.behind[count - 1])


def _after(chunk: Chunk, count: int) -> Chunk:
    events = Events(chunk.events.rows.slice(count), chunk.events.times[count:])
    return Chunk(events, chunk.behind[count:], chunk.end)
