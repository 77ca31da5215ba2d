"""Files whose checksum is known when they are written, without reading them again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import TypedDict

_CHUNK_BYTES = 4 << 20  # hashed and written while it is in the processor's cache


class FileFacts(TypedDict):
    """What a manifest says about a file."""

    sha256: str
    bytes: int


class HashedFile:
    """A new file. On leaving its context without an error it is on the disk, not in a cache."""

    def __init__(self, path: Path) -> None:
        """Makes the file.

        Raises:
            OSError: it cannot be made, or exists.
        """
        self._file = path.open("xb", buffering=0)
        self._hash = hashlib.sha256()
        self._bytes = 0

    @property
    def facts(self) -> FileFacts:
        """Size and checksum of what was written so far."""
        return {"sha256": self._hash.hexdigest(), "bytes": self._bytes}

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends bytes; other Python threads run meanwhile.

        Raises:
            OSError: the disk is full or refuses.
        """
        rest = memoryview(data)
        while len(rest):
            # A disk that fills takes a part of a chunk and refuses the next.
            written = self._file.write(rest[:_CHUNK_BYTES])
            assert written is not None  # a blocking file
            self._hash.update(rest[:written])
            self._bytes += written
            rest = rest[written:]

    def __enter__(self) -> HashedFile:
        """Returns itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Flushes the file to the disk and closes it."""
        with self._file:
            if exc is None:
                os.fsync(self._file.fileno())
                # A large table's files shall not push what training reads out of memory.
                os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
