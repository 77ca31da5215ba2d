"""`WaitingRows`: rows that wait for their labels, the newest in memory and the others in a file.

Where a row waits decides nothing: rows leave by key, deadline and arrival alone.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotrow.trainer.online.event_times import Times
from hotrow.trainer.online.waiting_file import WaitingFile
from hotrow.trainer.online.waiting_row import WaitingRow


class _Block:
    """The rows of one read. N rows."""

    def __init__(
        self, first: int, read: int, rows: pa.RecordBatch, keys: list[str], deadlines: Times
    ) -> None:
        self.first = first
        self.read = read
        self.rows = rows
        self.keys = keys
        self.deadlines = deadlines
        self.waits: npt.NDArray[np.bool_] = np.zeros(len(keys), dtype=np.bool_)
        self.count = 0
        self._order: list[int] = np.argsort(deadlines, kind="stable").tolist()
        self._at = 0

    @property
    def next_deadline(self) -> float:
        """The smallest deadline of the rows that `expired` has not passed."""
        if self._at == len(self._order):
            return float("inf")
        return float(self.deadlines[self._order[self._at]])

    def expired(self, newest: float) -> list[tuple[float, int]]:
        """Passes rows with earlier deadlines; returns (deadline, arrival) of those that wait."""
        found = []
        while self.next_deadline < newest:
            place = self._order[self._at]
            if self.waits[place]:
                found.append((self.next_deadline, self.first + place))
            self._at += 1
        return found


class WaitingRows:
    """Rows by arrival, a number that grows by 1 with each."""

    def __init__(self, most_in_memory: int, open_file: Callable[[], WaitingFile] | None) -> None:
        """Starts without rows.

        Args:
            most_in_memory: rows in memory, besides those of one read.
            open_file: makes the file for more of them, with the first; None: all are in memory.
        """
        self._most_in_memory = most_in_memory
        self._open_file = open_file
        self._file: WaitingFile | None = None
        self._blocks: list[_Block] = []
        self._firsts: list[int] = []  # of the blocks
        self._deadlines: list[tuple[float, int]] = []  # heap of (next deadline, first arrival)
        self._newest_of: dict[str, int] = {}
        self._older: dict[int, int] = {}  # the row before it with its key
        self._arrivals = 0
        self._in_memory = 0

    def __len__(self) -> int:
        return self._in_memory + (0 if self._file is None else self._file.count)

    @property
    def next_deadline(self) -> float:
        """No row has an earlier deadline."""
        in_memory = self._deadlines[0][0] if self._deadlines else float("inf")
        return in_memory if self._file is None else min(in_memory, self._file.next_deadline)

    def begin(self, read: int, rows: pa.RecordBatch, keys: list[str], deadlines: Times) -> None:
        """Brings the N rows of a read; each waits from `add` on.

        Args:
            read: number of the read.
            rows: N rows.
            keys: their keys.
            deadlines: float64 [N].
        """
        if not keys:
            return
        block = _Block(self._arrivals, read, rows, keys, deadlines)
        self._arrivals += len(keys)
        self._blocks.append(block)
        self._firsts.append(block.first)
        heapq.heappush(self._deadlines, (block.next_deadline, block.first))

    def add(self, place: int) -> None:
        """Lets a row of the newest read wait."""
        block = self._blocks[-1]
        arrival, key = block.first + place, block.keys[place]
        block.waits[place] = True
        block.count += 1
        self._in_memory += 1
        before = self._newest_of.get(key)
        if before is not None:
            self._older[arrival] = before
        self._newest_of[key] = arrival

    def pass_by(self, place: int) -> WaitingRow:
        """Returns a row of the newest read that does not wait."""
        block = self._blocks[-1]
        return WaitingRow(block.rows, place, block.read)

    def take_of(self, key: str) -> WaitingRow | None:
        """Removes the newest row with a key, and returns it; None: there is none."""
        arrival = self._newest_of.get(key)
        if arrival is not None:
            return self._take_in_memory(self._block_of(arrival), arrival)
        return None if self._file is None else self._file.take_newest_of(key)

    def take_expired(self, newest: float) -> list[WaitingRow]:
        """Removes the rows whose deadline is before a time; returns them by deadline, arrival."""
        found: list[tuple[float, int]] = []
        while self._deadlines and self._deadlines[0][0] < newest:
            _, first = heapq.heappop(self._deadlines)
            if not self._firsts or first < self._firsts[0]:
                continue  # its rows left, or are in the file by now
            block = self._block_of(first)
            found += block.expired(newest)
            if block.next_deadline < float("inf"):
                heapq.heappush(self._deadlines, (block.next_deadline, first))
        rows = [
            (deadline, arrival, self._take_in_memory(self._block_of(arrival), arrival))
            for deadline, arrival in found
        ]
        if self._file is not None:
            rows += self._file.take_expired(newest)
        return [row for _, _, row in sorted(rows, key=lambda one: one[:2])]

    def take_oldest(self) -> WaitingRow:
        """Removes the row that arrived first, and returns it; there is one."""
        on_disk = None if self._file is None else self._file.take_oldest()
        if on_disk is not None:
            return on_disk
        block = next(block for block in self._blocks if block.count)
        return self._take_in_memory(block, block.first + int(np.argmax(block.waits)))

    def settle(self) -> None:
        """Forgets reads without waiting rows, and moves the oldest rows to the file."""
        gone = 0
        for block in self._blocks:
            if block.count and (self._open_file is None or self._in_memory <= self._most_in_memory):
                break
            if block.count:
                self._to_file(block)
            gone += 1
        del self._blocks[:gone], self._firsts[:gone]

    def close(self) -> None:
        """Removes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _block_of(self, arrival: int) -> _Block:
        """Returns the block of a row in memory."""
        return self._blocks[bisect.bisect_right(self._firsts, arrival) - 1]

    def _take_in_memory(self, block: _Block, arrival: int) -> WaitingRow:
        place = arrival - block.first
        block.waits[place] = False
        block.count -= 1
        self._in_memory -= 1
        self._forget(block.keys[place], arrival)
        return WaitingRow(block.rows, place, block.read)

    def _forget(self, key: str, arrival: int) -> None:
        """Lets the key name the newest other row in memory that waits, if there is one."""
        if self._newest_of.get(key) != arrival:
            return  # a newer row has the key; this one is passed when that one leaves
        older = self._older.pop(arrival, None)
        while older is not None and not self._waits_in_memory(older):
            older = self._older.pop(older, None)
        if older is None:
            del self._newest_of[key]
        else:
            self._newest_of[key] = older

    def _waits_in_memory(self, arrival: int) -> bool:
        if arrival < self._firsts[0]:
            return False
        block = self._block_of(arrival)
        return bool(block.waits[arrival - block.first])

    def _to_file(self, block: _Block) -> None:
        """Moves the waiting rows of a block, the first one, to the file."""
        if self._file is None and self._open_file is not None:
            self._file = self._open_file()
        assert self._file is not None
        places = np.flatnonzero(block.waits)
        keys = [block.keys[place] for place in places.tolist()]
        arrivals = (places + block.first).tolist()
        rows = block.rows.take(pa.array(places))
        self._file.add(block.read, rows, arrivals, keys, block.deadlines[places].tolist())
        block.waits[places] = False
        self._in_memory -= len(arrivals)
        for key, arrival in zip(keys, arrivals, strict=True):
            self._forget(key, arrival)


def rows_of(waiting: Sequence[WaitingRow]) -> pa.RecordBatch:
    """Returns the rows of one or more waiting rows, in order."""
    starts: dict[int, int] = {}
    pieces: list[Any] = []
    total = 0
    indices = np.empty(len(waiting), dtype=np.int64)
    for i, row in enumerate(waiting):
        start = starts.get(id(row.rows))
        if start is None:
            start = starts[id(row.rows)] = total
            pieces.append(row.rows)
            total += row.rows.num_rows
        indices[i] = start + row.place
    table = pa.Table.from_batches(pieces).take(pa.array(indices))
    batch: pa.RecordBatch = table.combine_chunks().to_batches()[0]
    return batch
