"""Files whose checksum is computed while they are written, without reading them again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import TypedDict

_CHUNK_BYTES = 4 << 20  # stays in the processor's cache between write and hash


class FileFacts(TypedDict):
    """A manifest's entry about a file."""

    sha256: str
    bytes: int


class HashedFile:
    """A new file. It is flushed to the disk when its context ends without an error."""

    def __init__(self, path: Path) -> None:
        """Makes the file.

        Raises:
            OSError: the file cannot be made, or exists.
        """
        self._file = path.open("xb", buffering=0)
        self._hash = hashlib.sha256()
        self._bytes = 0

    @property
    def facts(self) -> FileFacts:
        """Size and checksum of the bytes written so far."""
        return {"sha256": self._hash.hexdigest(), "bytes": self._bytes}

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends bytes; other Python threads run meanwhile.

        Raises:
            OSError: the disk is full or refuses.
        """
        rest = memoryview(data)
        while len(rest):
            # A disk that becomes full writes a part of a chunk and refuses the rest.
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
                # Drops the file from the page cache, so that it does not displace pages that
                # training reads.
                os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
