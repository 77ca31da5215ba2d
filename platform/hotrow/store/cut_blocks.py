"""Blocks of a cut: rows of one table and shard, or a part of the dense weights.

Docs/formats.md, "Cuts". N rows, B bytes of a stored row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hotrow import _native
from hotrow.errors import DataLossError
from hotrow.store.row_store import Keys, Place, Rows, Versions
from hotrow.store.spec import RECORD_HEAD_BYTES, Generation

DENSE = 0xFFFFFFFF
"""In the place of a table's number: the block is a part of the dense weights."""
TOMBSTONE = np.uint64(1 << 63)

_MAGIC = b"HRCB"
_START = struct.Struct("<4sIq")  # magic, table, checksum
_CHECKED = struct.Struct("<QIIII")  # version, shard, count, bytes of a row, 0
_HEAD = struct.Struct("<4sIqQIIII")  # both
_TABLE = struct.Struct("<I")
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Block:
    """A block that was read.

    Attributes:
        version: version of the cut.
        table: the table's number, or DENSE.
        shard: the shard of the rows.
        keys: int64 [N]; empty for dense weights.
        rows: uint8 [N, B]; for dense weights [bytes, 1].
        versions: uint64 [N]; the highest bit marks a tombstone.
    """

    version: int
    table: int
    shard: int
    keys: Keys
    rows: Rows
    versions: Versions


def row_blocks(
    generation: Generation,
    version: int,
    table: int,
    keys: Keys,
    rows: Rows,
    removed: Keys,
    first_numbers: dict[int, int],
    stride: int = 1,
) -> Iterator[tuple[Place, bytes]]:
    """Yields the blocks of a table's changes, with their places.

    Args:
        generation: the generation that the cut changes.
        version: version of the cut.
        table: the table's number.
        keys: int64 [N], distinct.
        rows: uint8 [N, B].
        removed: int64 [M], keys that lose their row; none of `keys`.
        first_numbers: the next free number of each shard; updated in place.
        stride: from one number to the next: processes that stage a cut together take turns.
    """
    width = generation.tables[table].row_bytes
    all_keys = np.concatenate([keys, removed])
    all_rows = np.concatenate([rows, np.zeros((len(removed), width), np.uint8)])
    versions = np.full(len(all_keys), version, np.uint64)
    versions[len(keys) :] |= TOMBSTONE
    _, order, counts = _native.group_by_owner(all_keys, generation.shards, True)
    records = _records(all_keys[order], versions[order], all_rows[order])
    most = max(1, _BLOCK_BYTES // (RECORD_HEAD_BYTES + width))
    at = 0
    for shard, count in enumerate(counts.tolist()):
        end = at + count
        while at < end:
            body = records[at : min(at + most, end)]
            place = shard, first_numbers.get(shard, 0)
            first_numbers[shard] = place[1] + stride
            yield place, _sealed(version, table, shard, len(body), width, body.tobytes())
            at += len(body)


def dense_blocks(
    generation: Generation,
    version: int,
    content: bytes,
    first_numbers: dict[int, int],
    stride: int = 1,
) -> Iterator[tuple[Place, bytes]]:
    """Yields the blocks of the dense weights in their order, spread over the shards.

    Args:
        generation: the generation that the cut changes.
        version: version of the cut.
        content: opaque bytes.
        first_numbers: as for `row_blocks`.
        stride: as for `row_blocks`.
    """
    for part, first in enumerate(range(0, len(content), _BLOCK_BYTES)):
        shard = part % generation.shards
        piece = content[first : first + _BLOCK_BYTES]
        place = shard, first_numbers.get(shard, 0)
        first_numbers[shard] = place[1] + stride
        yield place, _sealed(version, DENSE, shard, len(piece), 1, piece)


def check_block(
    block: bytes, generation: Generation, version: int, place: Place
) -> tuple[int, int, int]:
    """Checks that a block is whole, and that of this place.

    Returns:
        Number of the table or DENSE; number of rows or bytes; bytes of a row, or 1.

    Raises:
        DataLossError: the block is damaged, or belongs to another place.
    """
    where = f"block {place[1]} of shard {place[0]} of cut {version:016x}"
    if len(block) < _HEAD.size:
        raise DataLossError(f"{where} is cut: {len(block)} bytes")
    magic, table, checksum, own, shard, count, width, _ = _HEAD.unpack_from(block)
    if magic != _MAGIC or _checksum(table, block[_START.size :]) != checksum:
        raise DataLossError(f"{where} is damaged")
    known = table == DENSE or (
        table < len(generation.tables) and width == generation.tables[table].row_bytes
    )
    size = width if table == DENSE else RECORD_HEAD_BYTES + width
    if own != version or shard != place[0] or not known or len(block) != _HEAD.size + count * size:
        raise DataLossError(f"{where} is one of another cut or table")
    return table, count, width


def read_block(block: bytes, generation: Generation, version: int, place: Place) -> Block:
    """Returns what a block holds.

    Raises:
        DataLossError: the block is damaged, or belongs to another place.
    """
    table, count, width = check_block(block, generation, version, place)
    shard, size = place[0], width if table == DENSE else RECORD_HEAD_BYTES + width
    body = np.frombuffer(block, np.uint8, offset=_HEAD.size).reshape(count, size)
    if table == DENSE:
        return Block(version, table, shard, np.empty(0, np.int64), body, np.empty(0, np.uint64))
    keys = body[:, :8].copy().view(np.int64)[:, 0]
    versions = body[:, 8:RECORD_HEAD_BYTES].copy().view(np.uint64)[:, 0]
    rows = np.ascontiguousarray(body[:, RECORD_HEAD_BYTES:])
    if ((versions & ~TOMBSTONE) != version).any():
        where = f"block {place[1]} of shard {shard} of cut {version:016x}"
        raise DataLossError(f"{where} has rows of another cut")
    return Block(version, table, shard, keys, rows, versions)


def former_block(block: Block, rows: Rows, removed: npt.NDArray[np.bool_]) -> bytes:
    """Returns a block with the same keys, and the rows that they had before.

    Args:
        block: a block of rows.
        rows: uint8 [N, B].
        removed: bool [N], keys that had no row: they get a tombstone.
    """
    width = rows.shape[1]
    versions = np.full(len(block.keys), block.version, np.uint64)
    versions[removed] |= TOMBSTONE
    records = _records(block.keys, versions, rows)
    return _sealed(block.version, block.table, block.shard, len(records), width, records.tobytes())


def blocks_of(path: Path, generation: Generation, version: int) -> Iterator[Block]:
    """Yields the blocks of rows in a file, which holds one after the other.

    Raises:
        DataLossError: a block is damaged.
        OSError: the file cannot be read.
    """
    if not path.stat().st_size:
        return
    content = np.memmap(path, np.uint8, "r")
    at = 0
    while at < len(content):
        head = content[at : at + _HEAD.size].tobytes()
        if len(head) < _HEAD.size:
            raise DataLossError(f"{path} is cut: {len(content)} bytes")
        _, _, _, _, shard, count, width, _ = _HEAD.unpack(head)
        size = _HEAD.size + count * (RECORD_HEAD_BYTES + width)
        yield read_block(content[at : at + size].tobytes(), generation, version, (shard, 0))
        at += size


def _records(keys: Keys, versions: Versions, rows: Rows) -> npt.NDArray[np.uint8]:
    """Returns rows with their heads, uint8 [N, 16 + B]."""
    records = np.empty((len(keys), RECORD_HEAD_BYTES + rows.shape[1]), np.uint8)
    records[:, :8] = keys[:, None].view(np.uint8)
    records[:, 8:RECORD_HEAD_BYTES] = versions[:, None].view(np.uint8)
    records[:, RECORD_HEAD_BYTES:] = rows
    return records


def _sealed(version: int, table: int, shard: int, count: int, width: int, body: bytes) -> bytes:
    checked = _CHECKED.pack(version, shard, count, width, 0) + body
    return _START.pack(_MAGIC, table, _checksum(table, checked)) + checked


def _checksum(table: int, checked: bytes) -> int:
    """Returns FarmHash Fingerprint64 of the table's number and all bytes after the checksum."""
    (found,) = _native.fingerprint64([_TABLE.pack(table) + checked]).tolist()
    return int(found)
