"""`FileMark`: what distinguishes a file from others, whatever its name is.

A log is renamed when it is rotated, and a new one takes its name. So a file is known by some of its
bytes: a growing text file by its first ones, a Parquet file by its last ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import google_crc32c

MARK_BYTES = 1024


@dataclass(frozen=True)
class FileMark:
    """Some bytes of a file.

    Attributes:
        crc: their CRC-32C.
        first: how many first bytes of a text file they are; None: the last ones of a whole file.
        size: size of the whole file; None: it grows.
    """

    crc: int
    first: int | None
    size: int | None = None

    def fits(self, path: Path) -> bool:
        """Returns whether a file has these bytes; False if it does not exist."""
        try:
            with path.open("rb") as file:
                return self.fits_opened(file)
        except OSError:
            return False

    def fits_head(self, head: bytes) -> bool:
        """Returns whether these are the first bytes of the file, if it grows."""
        if self.first is None or len(head) < self.first:
            return False
        return bool(google_crc32c.value(head[: self.first]) == self.crc)

    def fits_opened(self, file: BinaryIO) -> bool:
        """Returns whether an open file has these bytes.

        Raises:
            OSError: it cannot be read.
        """
        if self.first is not None:
            file.seek(0)
            return self.fits_head(file.read(self.first))
        return bool(file.seek(0, 2) == self.size and google_crc32c.value(_tail(file)) == self.crc)


def head_of(path: Path) -> bytes:
    """Returns the first bytes of a file, at most `MARK_BYTES`.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(MARK_BYTES)


def mark_of_head(head: bytes) -> FileMark | None:
    """Returns the mark of a growing file by its first lines; None: it has no whole one yet."""
    if len(head) < MARK_BYTES:
        head = head[: head.rfind(b"\n") + 1]
    return FileMark(google_crc32c.value(head), len(head)) if head else None


def mark_of_whole(path: Path) -> FileMark:
    """Returns the mark of a file that does not change.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        return FileMark(google_crc32c.value(_tail(file)), None, size)


def _tail(file: BinaryIO) -> bytes:
    file.seek(max(0, file.seek(0, 2) - MARK_BYTES))
    return file.read()
