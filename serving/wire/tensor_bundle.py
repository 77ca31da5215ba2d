"""Reads the tensors of a TensorFlow checkpoint without TensorFlow.

A checkpoint is `<prefix>.index`, an uncompressed table of LevelDB's format with a BundleEntryProto
for each tensor, and `<prefix>.data-00000-of-00001` with their bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2

from hotrow.errors import DataLossError

_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
# Of bfloat16 the bits are given.
_FLOATS: dict[int, npt.DTypeLike] = {
    types_pb2.DT_FLOAT: np.dtype("<f4"),
    types_pb2.DT_DOUBLE: np.dtype("<f8"),
    types_pb2.DT_HALF: np.dtype("<f2"),
    types_pb2.DT_BFLOAT16: np.dtype("<u2"),
}


def floating_tensors(prefix: Path) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yields (name, values [N]) of each floating-point tensor; uint16 bits of a bfloat16 one.

    Raises:
        DataLossError: a file is missing or damaged.
    """
    try:
        index = prefix.with_name(f"{prefix.name}.index").read_bytes()
        data = np.memmap(prefix.with_name(f"{prefix.name}.data-00000-of-00001"), np.uint8, "r")
        for name, content in _records(index):
            if not name:
                continue  # the header
            entry = tensor_bundle_pb2.BundleEntryProto.FromString(content)
            kind = _FLOATS.get(entry.dtype)
            if kind is not None:
                piece = np.asarray(data[entry.offset : entry.offset + entry.size])
                yield name.decode(), piece.view(kind)
    except (OSError, ValueError, IndexError, struct.error) as err:
        raise DataLossError(f"the checkpoint {prefix} cannot be read: {err}") from err


def _records(index: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields (key, value) of a table in the order of its keys."""
    footer = index[-_FOOTER_BYTES:]
    if len(index) < _FOOTER_BYTES or struct.unpack("<Q", footer[-8:])[0] != _MAGIC:
        raise ValueError("the index has no footer")
    _, at = _handle(footer, 0)
    blocks, _ = _handle(footer, at)
    for _, block in _block(index, *blocks):
        place, _ = _handle(block, 0)
        yield from _block(index, *place)


def _block(index: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the entries of a block, whose keys leave out what they share with the one before."""
    if index[offset + size] != 0:
        raise ValueError("the index is compressed")
    block = index[offset : offset + size]
    (restarts,) = struct.unpack("<I", block[-4:])
    end = size - 4 * (restarts + 1)
    key, at = b"", 0
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own
        yield key, block[at : at + length]
        at += length


def _handle(content: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Returns ((offset, size) of a block, where the next value begins)."""
    offset, at = _varint(content, at)
    size, at = _varint(content, at)
    return (offset, size), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Returns (value, where the next one begins)."""
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
