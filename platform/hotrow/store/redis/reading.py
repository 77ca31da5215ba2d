"""Reads rows by key, for tools and tests; servers read natively."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotrow import _native
from hotrow.errors import DataLossError, UnavailableError
from hotrow.store.redis.client import RedisClient
from hotrow.store.redis.layout import PagedTable, markers_of
from hotrow.store.redis.parcel import Parcel, packed
from hotrow.store.redis.putting import TOMBSTONE
from hotrow.store.row_store import Keys, Rows, States, Versions
from hotrow.store.spec import RECORD_HEAD_BYTES

_PAGES_AT_ONCE = 256


def read_rows(client: RedisClient, table: PagedTable, keys: Keys) -> tuple[Rows, Versions, States]:
    """Returns rows, versions and states of keys; see `RowStore.read`.

    Raises:
        UnavailableError: a node does not answer, or a shard has lost its pages.
        DataLossError: a page is no whole number of records.
    """
    records = _records_of(client, table, keys)
    rows = np.zeros((len(keys), table.row_bytes), np.uint8)
    versions = np.zeros(len(keys), np.uint64)
    states = np.zeros(len(keys), np.uint8)
    if not len(records):
        return rows, versions, states
    found_keys = records[:, :8].copy().view("<i8")[:, 0]
    order = np.argsort(found_keys)
    at = order[np.searchsorted(found_keys, keys, sorter=order).clip(max=len(order) - 1)]
    there = found_keys[at] == keys
    records = records[at[there]]
    versions[there] = records[:, 8:RECORD_HEAD_BYTES].copy().view("<u8")[:, 0]
    rows[there] = records[:, RECORD_HEAD_BYTES:]
    states[there] = (versions[there] & TOMBSTONE) == 0
    return rows, versions, states


def _records_of(client: RedisClient, table: PagedTable, keys: Keys) -> NDArray[np.uint8]:
    """Returns the records uint8 [_, 16 + B] of all pages with these keys."""
    generation = table.generation
    markers, slots = markers_of(generation)
    shard_of, page_of = _native.page_of_keys(keys, generation.shards, table.pages)
    by_shard: dict[int, set[int]] = {}
    for shard, page in zip(shard_of.tolist(), page_of.tolist(), strict=True):
        by_shard.setdefault(shard, set()).add(page)
    asked: list[tuple[int, list[bytes]]] = []
    for shard, pages in by_shard.items():
        names = [table.name(markers[shard], page) for page in sorted(pages)]
        for first in range(0, len(names), _PAGES_AT_ONCE):
            asked.append((shard, names[first : first + _PAGES_AT_ONCE]))
    found: list[bytes] = []
    incomplete: set[int] = set()

    def take(number: int, answers: list[Any]) -> None:
        shard, names = asked[number]
        for name, page in zip(names, answers[0], strict=True):
            if page is None:
                incomplete.add(shard)
            elif len(page) % table.record_bytes:
                raise DataLossError(
                    f"{client.url}: page {name.decode()} has {len(page)} bytes, not a multiple of "
                    f"{table.record_bytes}; export the model again"
                )
            else:
                found.append(page)

    client.deliver([Parcel(slots[s], 1, packed("MGET", *names)) for s, names in asked], take)
    # A missing page is empty only where the shard is whole.
    for shard in sorted(incomplete):
        if not client.call(slots[shard], "EXISTS", markers[shard]):
            raise UnavailableError(
                f"{client.url}: shard {shard} of generation {generation.generation} has lost its "
                "rows; export the model again"
            )
    return np.frombuffer(b"".join(found), np.uint8).reshape(-1, table.record_bytes)
