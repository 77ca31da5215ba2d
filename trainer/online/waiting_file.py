"""`WaitingFile`: rows that wait for their labels on disk. It is made anew by each process."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from hotrow.errors import UnavailableError
from hotrow.trainer.online.waiting_row import WaitingRow

_BLOCKS_IN_MEMORY = 16
_ROWS_AT_ONCE = 4096
"""Rows whose deadlines are read at once, and that are removed at once."""

_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE blocks (block INTEGER PRIMARY KEY, waiting INTEGER, read INTEGER, rows BLOB);
CREATE TABLE waiting (
    arrival INTEGER PRIMARY KEY, block INTEGER, place INTEGER, key TEXT, deadline REAL);
CREATE INDEX by_key ON waiting (key, arrival);
CREATE INDEX by_deadline ON waiting (deadline, arrival);
CREATE INDEX empty_blocks ON blocks (block) WHERE waiting = 0;
"""


class WaitingFile:
    """Rows in a database file, found by key, deadline and arrival.

    Rows are written in blocks, as they were read. A row that leaves is read with its block.

    Attributes:
        count: number of waiting rows.
    """

    def __init__(self, path: Path) -> None:
        """Makes the file, instead of one that an earlier process left.

        Raises:
            UnavailableError: it cannot be written.
        """
        self._path = path
        self.count = 0
        self._due: deque[tuple[float, int, int, int]] = deque()  # deadline, arrival, block, place
        self._is_all_due = True
        self._gone: dict[int, int] = {}  # rows that were taken and not removed: arrival, block
        self._blocks: OrderedDict[int, tuple[int, pa.RecordBatch]] = OrderedDict()
        try:
            path.unlink(missing_ok=True)
        except OSError as err:
            raise UnavailableError(f"{path} cannot be written: {err.strerror}") from err
        with self._errors():
            # Closed by another thread than that which reads.
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.executescript(_TABLES)

    def close(self) -> None:
        """Removes the file."""
        self._database.close()
        self._path.unlink(missing_ok=True)

    def add(
        self,
        read: int,
        rows: pa.RecordBatch,
        arrivals: Sequence[int],
        keys: Sequence[str],
        deadlines: Sequence[float],
    ) -> None:
        """Adds N rows that arrived after all others here.

        Args:
            read: number of the read that they are of.
            rows: N rows.
            arrivals: their numbers, ascending.
            keys: their keys.
            deadlines: until when they wait.

        Raises:
            UnavailableError: the file cannot be written.
        """
        block = arrivals[0]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        data = sink.getvalue().to_pybytes()
        with self._errors(), self._transaction():
            self._database.execute(
                "INSERT INTO blocks VALUES (?, ?, ?, ?)", (block, len(arrivals), read, data)
            )
            self._database.executemany(
                "INSERT INTO waiting VALUES (?, ?, ?, ?, ?)",
                (
                    (arrival, block, place, key, deadline)
                    for place, (arrival, key, deadline) in enumerate(
                        zip(arrivals, keys, deadlines, strict=True)
                    )
                ),
            )
        self.count += len(arrivals)
        if self._is_all_due or not self._due or min(deadlines) <= self._due[-1][0]:
            self._due.clear()
            self._is_all_due = False

    @property
    def next_deadline(self) -> float:
        """The smallest deadline of the rows.

        Raises:
            UnavailableError: the file cannot be read or written.
        """
        while self._due and self._due[0][1] in self._gone:
            self._due.popleft()
        if not self._due and not self._is_all_due:
            self._load_due()
        return self._due[0][0] if self._due else float("inf")

    def take_expired(self, newest: float) -> list[tuple[float, int, WaitingRow]]:
        """Removes the rows whose deadline is before a time; returns deadline, arrival and row.

        They are in the order of deadline and arrival.

        Raises:
            UnavailableError: the file cannot be read or written.
        """
        taken = []
        while self.next_deadline < newest:
            deadline, arrival, block, place = self._due.popleft()
            taken.append((deadline, arrival, self._take(arrival, block, place)))
        return taken

    def take_newest_of(self, key: str) -> WaitingRow | None:
        """Removes the newest row with a key, and returns it; None: there is none.

        Raises:
            UnavailableError: the file cannot be read or written.
        """
        return self._take_first("WHERE key = ? ORDER BY arrival DESC", key)

    def take_oldest(self) -> WaitingRow | None:
        """Removes the row that arrived first, and returns it; None: there is none.

        Raises:
            UnavailableError: the file cannot be read or written.
        """
        return self._take_first("ORDER BY arrival")

    def _take_first(self, which: str, *values: str) -> WaitingRow | None:
        if not self.count:
            return None
        with self._errors():
            rows = self._database.execute(
                f"SELECT arrival, block, place FROM waiting {which}", values
            )
            found = next((row for row in rows if row[0] not in self._gone), None)
        return None if found is None else self._take(*found)

    def _take(self, arrival: int, block: int, place: int) -> WaitingRow:
        read, rows = self._block(block)
        self.count -= 1
        self._gone[arrival] = block
        if len(self._gone) >= _ROWS_AT_ONCE:
            self._remove_gone()
        return WaitingRow(rows, place, read)

    def _load_due(self) -> None:
        """Reads the rows with the smallest deadlines."""
        self._remove_gone()
        with self._errors():
            found = self._database.execute(
                "SELECT deadline, arrival, block, place FROM waiting "
                "ORDER BY deadline, arrival LIMIT ?",
                (_ROWS_AT_ONCE,),
            ).fetchall()
        self._due = deque(found)
        self._is_all_due = len(found) < _ROWS_AT_ONCE

    def _remove_gone(self) -> None:
        """Removes the rows that were taken from the file, all at once."""
        if not self._gone:
            return
        left = Counter(self._gone.values())
        with self._errors(), self._transaction():
            self._database.execute(
                "DELETE FROM waiting WHERE arrival IN (SELECT value FROM json_each(?))",
                (json.dumps(list(self._gone)),),
            )
            self._database.executemany(
                "UPDATE blocks SET waiting = waiting - ? WHERE block = ?",
                [(count, block) for block, count in left.items()],
            )
            self._database.execute("DELETE FROM blocks WHERE waiting = 0")
        self._due = deque(row for row in self._due if row[1] not in self._gone)
        self._gone.clear()

    def _block(self, block: int) -> tuple[int, pa.RecordBatch]:
        if block not in self._blocks:
            read, data = self._database.execute(
                "SELECT read, rows FROM blocks WHERE block = ?", (block,)
            ).fetchone()
            with pa.ipc.open_stream(data) as reader:
                self._blocks[block] = read, reader.read_next_batch()
        self._blocks.move_to_end(block)
        while len(self._blocks) > _BLOCKS_IN_MEMORY:
            self._blocks.popitem(last=False)
        return self._blocks[block]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN")
        yield
        self._database.execute("COMMIT")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as err:
            raise UnavailableError(
                f"{self._path} cannot be used: {err}; rows that wait for labels are there: make "
                "room, or set online.join.most_disk_rows: 0"
            ) from err
