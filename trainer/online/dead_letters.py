"""`DeadLetters`: the file of events that are not trained, with the reason of each."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hotrow.errors import UnavailableError, is_full_disk

FILE_BYTES = 64 << 20
"""Size at which a new file is begun."""

_RETRY_SECONDS = 0.5
"""Between two attempts to write to a full disk."""


class DeadLetters:
    """Writes events as JSON lines: `reason`, `place`, and `event` (text) or `base64` (bytes).

    The newest file has the path itself; full ones are renamed to `PATH.1`, `PATH.2` and so on, and
    are never deleted. When all of them together have `most_bytes`, further events are only counted.
    Who removes files makes room. While the disk is full, `add` waits. After a crash the events
    behind the last checkpoint are read again, so a file may have a bad event twice. Thread-safe.
    """

    def __init__(self, path: Path, most_bytes: int, report: Callable[[str], None]) -> None:
        """Opens the file for appending with the first event.

        Args:
            path: the newest file; its folder exists.
            most_bytes: size of all files; 0: events are only counted.
            report: called with a line when `add` begins to wait, and when the wait has ended.
        """
        self._path = path
        self._most_bytes = most_bytes
        self._report = report
        self._file: io.FileIO | None = None
        self._lock = threading.Lock()
        self._gives_up = threading.Event()
        self._counts: Counter[str] = Counter()
        self._unwritten = 0
        self._is_muted = False

    @property
    def path(self) -> Path:
        """The newest file."""
        return self._path

    @property
    def unwritten(self) -> int:
        """Number of events that were only counted, because the files are full."""
        return self._unwritten

    def count(self, kind: str) -> int:
        """Returns the number of events of a kind since the start."""
        return self._counts[kind]

    def add(self, kind: str, reason: str, place: Any, event: bytes | dict[str, Any] | None) -> None:
        """Writes and counts an event; waits for room if the disk is full.

        Args:
            kind: what is counted: `bad`, `late` or `label`.
            reason: why it is not trained.
            place: where the source has it, as a JSON value.
            event: its bytes; or the values of its columns; None: only the place is known.

        Raises:
            UnavailableError: the file cannot be written; or the disk is full, and `give_up` was
                called.
        """
        if self._is_muted:
            return
        letter: dict[str, Any] = {"kind": kind, "reason": reason, "place": place}
        if isinstance(event, bytes):
            try:
                letter["event"] = event.decode()
            except UnicodeDecodeError:
                letter["base64"] = base64.b64encode(event).decode()
        elif event is not None:
            letter["event"] = event
        line = json.dumps(letter, ensure_ascii=False, default=str)
        data = line.encode(errors="backslashreplace") + b"\n"
        with self._lock:
            self._counts[kind] += 1
            self._write_when_possible(data)

    @contextlib.contextmanager
    def muted(self) -> Iterator[None]:
        """Leaves out the letters of events that are read again."""
        self._is_muted = True
        try:
            yield
        finally:
            self._is_muted = False

    def give_up(self) -> None:
        """Lets calls of `add` that wait for room raise an error, from now on."""
        self._gives_up.set()

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _write_when_possible(self, data: bytes) -> None:
        waits = False
        while True:
            try:
                self._write(data)
            except OSError as err:
                what = f"{self._path} cannot be written: {err.strerror}"
                help_text = "make room, or set online.dead_letter_bytes: 0 to only count bad events"
                if not is_full_disk(err) or self._gives_up.is_set():
                    raise UnavailableError(f"{what}; {help_text}") from err
                if not waits:
                    self._report(f"no events while {what}; {help_text}")
                waits = True
            else:
                if waits:
                    self._report(f"{self._path} is written again")
                return
            self._gives_up.wait(_RETRY_SECONDS)

    def _write(self, data: bytes) -> None:
        if not self._most_bytes:
            self._unwritten += 1
            return
        if self._file is None:
            self._file = self._open()
        size = os.fstat(self._file.fileno()).st_size
        if size and size + len(data) > min(FILE_BYTES, max(1, self._most_bytes // 2)):
            self._path.rename(self._next_name())
            self._file.close()
            self._file = None
            self._file = self._open()
            size = 0
        if self._bytes_on_disk() + len(data) > self._most_bytes:
            self._unwritten += 1
            return
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            if len(left) < len(data):
                self._file.truncate(size)  # a part of the line
            raise

    def _open(self) -> io.FileIO:
        return self._path.open("ab", buffering=0)

    def _full(self) -> dict[int, Path]:
        """Returns the full files by their numbers."""
        prefix = self._path.name + "."
        names = {path.name.removeprefix(prefix): path for path in self._path.parent.iterdir()}
        return {int(name): path for name, path in names.items() if name.isdecimal()}

    def _next_name(self) -> Path:
        return self._path.with_name(f"{self._path.name}.{max(self._full(), default=0) + 1}")

    def _bytes_on_disk(self) -> int:
        files = [self._path, *self._full().values()]
        return sum(path.stat().st_size for path in files if path.exists())
