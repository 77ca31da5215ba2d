"""`DeadLetters`: the file of events that are not trained, with the reason of each."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from hotrow.errors import UnavailableError

FILE_BYTES = 64 << 20
"""Size at which a new file is begun."""


class DeadLetters:
    """Writes events as JSON lines: `reason`, `place`, and `event` (text) or `base64` (bytes).

    The newest file has the path itself; full ones are renamed to `PATH.1`, `PATH.2` and so on, and
    are never deleted. When all of them together have `most_bytes`, further events are only counted.
    Who removes files makes room. After a crash the events behind the last checkpoint are read
    again, so a file may have a bad event twice. Thread-safe.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Opens the file for appending with the first event.

        Args:
            path: the newest file; its folder exists.
            most_bytes: size of all files; 0: events are only counted.
        """
        self._path = path
        self._most_bytes = most_bytes
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()
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
        """Writes and counts an event.

        Args:
            kind: what is counted: `bad`, `late` or `label`.
            reason: why it is not trained.
            place: where the source has it, as a JSON value.
            event: its bytes; or the values of its columns; None: only the place is known.

        Raises:
            UnavailableError: the file cannot be written.
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
            try:
                self._write(data)
            except OSError as err:
                raise UnavailableError(
                    f"{self._path} cannot be written: {err.strerror}; bad events go there: make "
                    "room, or set online.dead_letter_bytes: 0 to only count them"
                ) from err

    @contextlib.contextmanager
    def muted(self) -> Iterator[None]:
        """Leaves out the letters of events that are read again."""
        self._is_muted = True
        try:
            yield
        finally:
            self._is_muted = False

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _write(self, data: bytes) -> None:
        if not self._most_bytes:
            self._unwritten += 1
            return
        if self._file is None:
            self._file = self._path.open("ab")
        size = self._file.tell()
        if size and size + len(data) > min(FILE_BYTES, max(1, self._most_bytes // 2)):
            self._file.close()
            self._path.rename(self._next_name())
            self._file = self._path.open("ab")
        if self._bytes_on_disk() + len(data) > self._most_bytes:
            self._unwritten += 1
            return
        self._file.write(data)
        self._file.flush()

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
