"""Reads files of TFRecords, TensorFlow's framing of records, with its checks and its messages.

A record: its length (uint64, little-endian), the length's checksum (uint32), its bytes, and theirs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c

from hotrow.serving.wire.status import Code, RequestError

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_HEADER_BYTES = _LENGTH.size + _CHECKSUM.size
# Added to checksums, so that the checksum of bytes that contain a checksum is nothing special.
_MASK_DELTA = 0xA282EAD8


def read_records(path: Path) -> Iterator[bytes]:
    """Returns the records of a file, one after the other.

    As in TensorFlow, the file ends where fewer bytes are left than a record's header needs.

    Raises:
        RequestError: DATA_LOSS when a record is cut or damaged, or the file holds something else.
        OSError: it cannot be read.
    """
    left = path.stat().st_size
    at = 0
    with path.open("rb") as file:
        while left >= _HEADER_BYTES:
            hint = "" if at else " (Is this even a TFRecord file?)"
            (length,) = _LENGTH.unpack(_checked(file, _LENGTH.size, f"{at}{hint}"))
            size = _HEADER_BYTES + length + _CHECKSUM.size
            if size > left:
                raise RequestError(
                    Code.DATA_LOSS,
                    f"truncated record at {at}' failed with Read less bytes than requested",
                )
            yield _checked(file, length, str(at + _HEADER_BYTES))
            at += size
            left -= size


def _checked(file: BinaryIO, count: int, where: str) -> bytes:
    """Returns the next bytes; checks them against the checksum after them."""
    data = file.read(count)
    (expected,) = _CHECKSUM.unpack(file.read(_CHECKSUM.size))
    if _masked(google_crc32c.value(data)) != expected:
        raise RequestError(Code.DATA_LOSS, f"corrupted record at {where}")
    return data


def _masked(checksum: int) -> int:
    rotated = (checksum >> 15 | checksum << 17) & 0xFFFFFFFF
    return (rotated + _MASK_DELTA) & 0xFFFFFFFF
