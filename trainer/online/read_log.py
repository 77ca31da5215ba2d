"""`ReadLog`: the reads since the oldest row that was not trained."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from hotrow.trainer.online.source import Position


@dataclass
class _Read:
    """A read.

    Attributes:
        number: of the read.
        position: where it began.
        newest: the newest event time then.
        counts: its events by partition.
        rows: how many of them are rows.
        left: how many of these were not trained.
    """

    number: int
    position: Position
    newest: float | None
    counts: Mapping[str, int]
    rows: int
    left: int


class ReadLog:
    """Knows where to read again the rows that were not trained."""

    def __init__(self) -> None:
        """Starts empty."""
        self._reads: deque[_Read] = deque()
        self._by_number: dict[int, _Read] = {}
        # The counts of the reads; reads of one partition that follow each other are one.
        self._counts: deque[dict[str, int]] = deque()
        self._taken = 0
        self._next = 0

    def begin(
        self, position: Position, newest: float | None, counts: Mapping[str, int], rows: int
    ) -> int:
        """Adds a read, and returns its number.

        Args:
            position: where it began.
            newest: the newest event time then; None: there was none.
            counts: its events by partition; there are some.
            rows: how many of them are rows.
        """
        number = self._next
        self._next += 1
        read = _Read(number, position, newest, counts, rows, rows)
        self._reads.append(read)
        self._by_number[number] = read
        last = self._counts[-1] if self._counts else {}
        if len(last) == 1 and last.keys() == counts.keys():
            # Positions have the former ones, so they do not change.
            self._counts[-1] = {key: count + counts[key] for key, count in last.items()}
        else:
            self._counts.append(dict(counts))
        return number

    def leave(self, number: int) -> None:
        """Notes that a row of a read is trained."""
        self._by_number[number].left -= 1
        self._taken += 1

    def position(self) -> Position | None:
        """Returns where to read again, and what; None: all rows are trained."""
        while self._reads and not self._reads[0].left:
            self._forget(self._reads.popleft())
        if not self._reads:
            return None
        first = self._reads[0]
        return {
            "source": first.position,
            "newest": first.newest,
            "reads": list(self._counts),
            "taken": self._taken,
        }

    def _forget(self, read: _Read) -> None:
        """Removes the counts of the first read."""
        del self._by_number[read.number]
        self._taken -= read.rows
        first = self._counts[0]
        rest = {key: count - read.counts.get(key, 0) for key, count in first.items()}
        if any(rest.values()):
            self._counts[0] = rest
        else:
            self._counts.popleft()
