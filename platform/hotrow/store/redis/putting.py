"""Versioned writes of single rows into pages, by the function inside Redis."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotrow import _native
from hotrow.store.redis.client import RedisClient
from hotrow.store.redis.functions import PUT
from hotrow.store.redis.layout import PagedTable, markers_of
from hotrow.store.redis.parcel import Parcel, packed
from hotrow.store.row_store import Keys, Rows, Versions
from hotrow.store.spec import RECORD_HEAD_BYTES

TOMBSTONE = np.uint64(1 << 63)

# Pages in one call: 0.15 ms of Redis.
_PAGES_AT_ONCE = 32


def put_rows(
    client: RedisClient, table: PagedTable, keys: Keys, rows: Rows, versions: Versions
) -> int:
    """Puts rows; returns how many were newer than the stored ones; see `RowStore.put`."""
    if not len(keys):
        return 0
    generation = table.generation
    markers, slots = markers_of(generation)
    shard_of, page_of = _native.page_of_keys(keys, generation.shards, table.pages)
    order = np.lexsort((page_of, shard_of))
    shard_of, page_of = shard_of[order], page_of[order]
    size = table.record_bytes
    data = _records(keys[order], rows[order], versions[order]).tobytes()
    # Where each page's records begin, and the end.
    changes = np.flatnonzero((np.diff(shard_of) != 0) | (np.diff(page_of) != 0)) + 1
    begins = [0, *changes.tolist(), len(keys)]
    shards, pages = shard_of.tolist(), page_of.tolist()
    parcels: list[Parcel] = []
    names: list[bytes] = []
    records: list[bytes] = []
    for i, (first, last) in enumerate(itertools.pairwise(begins)):
        shard = shards[first]
        names.append(table.name(markers[shard], pages[first]))
        records.append(data[first * size : last * size])
        ends = i + 2 == len(begins) or shards[last] != shard
        if ends or len(names) == _PAGES_AT_ONCE:
            arguments = PUT, 1 + len(names), markers[shard], *names, size, *records
            parcels.append(Parcel(slots[shard], 1, packed("FCALL", *arguments)))
            names, records = [], []
    written: list[int] = []

    def take(number: int, answers: list[Any]) -> None:
        written.append(int(answers[0]))

    client.deliver(parcels, take)
    return sum(written)


def _records(keys: Keys, rows: Rows, versions: Versions) -> NDArray[np.uint8]:
    """Returns the records of rows, uint8 [N, 16 + B]."""
    count = len(keys)
    records = np.empty((count, RECORD_HEAD_BYTES + rows.shape[1]), np.uint8)
    records[:, :8] = keys.astype("<i8").reshape(count, 1).view(np.uint8)
    records[:, 8:RECORD_HEAD_BYTES] = versions.astype("<u8").reshape(count, 1).view(np.uint8)
    records[:, RECORD_HEAD_BYTES:] = rows
    records[(versions & TOMBSTONE) != 0, RECORD_HEAD_BYTES:] = 0
    return records
