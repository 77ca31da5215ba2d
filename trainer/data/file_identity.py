"""The identity of a data file: what it holds, as far as a few reads can show, not where it is."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from hotrow.trainer.data.errors import DataError

END_BYTES = 1 << 20
"""Bytes of the head and of the tail that the digest covers."""

_PARQUET = b"PAR1"
_TRAILER_BYTES = 8  # of Parquet: the length of the footer, then the magic


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The identity of a data file; equal for copies of it.

    A change in the middle of a long text file that keeps its size is not seen. In a compressed file
    the tail has a checksum of everything, in Parquet the footer has sizes, places and statistics.

    Attributes:
        path: where the file was; not compared.
        bytes: its size.
        sha256: of its first and its last `END_BYTES`, in hex; of a Parquet file's tail at least the
            whole footer.
    """

    path: str = field(compare=False)
    bytes: int
    sha256: str


def identity_of(path: Path, first_bytes: int | None = None) -> FileIdentity:
    """Returns the identity of a file.

    Args:
        path: the file.
        first_bytes: the identity of a file that has only these bytes; None: all.

    Raises:
        DataError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if first_bytes is not None:
                size = min(size, first_bytes)
            tail = size - max(END_BYTES, _footer_bytes(file, size))
            digest = hashlib.sha256(_bytes_of(file, 0, min(size, END_BYTES)))
            digest.update(_bytes_of(file, max(END_BYTES, tail), size))
    except OSError as err:
        raise DataError(f"{path} cannot be read: {err.strerror or err}; check the disk") from err
    return FileIdentity(str(path), size, digest.hexdigest())


def _footer_bytes(file: BinaryIO, size: int) -> int:
    """Returns the size of a Parquet file's footer with its trailer; 0 for another file."""
    trailer = _bytes_of(file, max(0, size - _TRAILER_BYTES), size)
    if not trailer.endswith(_PARQUET):
        return 0
    return min(size, int.from_bytes(trailer[:4], "little") + _TRAILER_BYTES)


def _bytes_of(file: BinaryIO, start: int, stop: int) -> bytes:
    file.seek(start)
    return file.read(max(0, stop - start))
