"""Blocks of cuts beside the rows: `hr{TT}GG!version:number`, numbers in base 64."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hotrow.store.redis.client import RedisClient
from hotrow.store.redis.functions import MARK
from hotrow.store.redis.layout import base64_digits, markers_of, names_of_markers
from hotrow.store.redis.parcel import Parcel, packed
from hotrow.store.row_store import Place, Versions
from hotrow.store.spec import Generation

_VERSION = struct.Struct("<Q")


def stage(
    client: RedisClient, generation: Generation, version: int, blocks: Mapping[Place, bytes]
) -> None:
    """Writes blocks; see `RowStore.stage`."""
    names = _names(generation, version, list(blocks))
    client.deliver(
        [
            Parcel(slot, 1, packed("SET", name, block))
            for (slot, name), block in zip(names, blocks.values(), strict=True)
        ]
    )


def staged(
    client: RedisClient,
    generation: Generation,
    version: int,
    places: Sequence[Place],
    block_bytes: int,
) -> list[bytes | None]:
    """Returns blocks; see `RowStore.staged`."""
    found: list[bytes | None] = [None] * len(places)

    def take(number: int, answers: list[Any]) -> None:
        found[number] = answers[0]

    names = _names(generation, version, places)
    parcels = [Parcel(slot, 1, packed("GET", name), block_bytes) for slot, name in names]
    client.deliver(parcels, take)
    return found


def unstage(
    client: RedisClient, generation: Generation, version: int, places: Sequence[Place]
) -> None:
    """Deletes blocks; see `RowStore.unstage`."""
    names = _names(generation, version, places)
    client.deliver([Parcel(slot, 1, packed("UNLINK", name)) for slot, name in names])


def watermarks(client: RedisClient, generation: Generation) -> Versions:
    """Returns uint64 [V]; see `RowStore.watermarks`."""
    found = np.zeros(generation.shards, np.uint64)

    def take(shard: int, answers: list[Any]) -> None:
        if answers[0] is not None:
            (found[shard],) = _VERSION.unpack(answers[0])

    client.deliver(_watermark_parcels(generation.shards, generation.number), take)
    return found


@functools.lru_cache(maxsize=64)
def _watermark_parcels(shards: int, number: int) -> list[Parcel]:
    """Returns the commands that read all watermarks: servers read them several times a second."""
    markers, slots = names_of_markers(shards, number)
    asked = [packed("HGET", marker, "wm") for marker in markers]
    return [Parcel(slot, 1, ask) for slot, ask in zip(slots, asked, strict=True)]


def set_watermarks(
    client: RedisClient, generation: Generation, version: int, shards: Sequence[int], least: int
) -> None:
    """Raises the watermarks of shards; see `RowStore.set_watermarks`."""
    markers, slots = markers_of(generation)
    values = _VERSION.pack(version), _VERSION.pack(least)
    client.deliver(
        [Parcel(slots[s], 1, packed("FCALL", MARK, 1, markers[s], *values)) for s in shards]
    )


def _names(
    generation: Generation, version: int, places: Sequence[Place]
) -> list[tuple[int, bytes]]:
    """Returns (slot, name) of blocks."""
    markers, slots = markers_of(generation)
    cut = base64_digits(version)
    return [
        (slots[shard], b"%s!%s:%s" % (markers[shard], cut, base64_digits(number)))
        for shard, number in places
    ]
