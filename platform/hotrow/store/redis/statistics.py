"""Statistics of a generation in Redis: memory, and its distribution over the nodes."""

from __future__ import annotations

from typing import Any

from hotrow.store.redis.client import RedisClient
from hotrow.store.redis.connections import address_text
from hotrow.store.redis.layout import PagedTable, markers_of
from hotrow.store.redis.parcel import Parcel, packed
from hotrow.store.spec import Generation
from hotrow.store.statistics import NodeStatistics, StoreStatistics, TableStatistics

_SAMPLED_SHARDS = 16
_SAMPLED_PAGES = 16  # of each sampled shard


def memory_facts(info: bytes) -> dict[str, str]:
    """Returns the values in an answer to `INFO memory`."""
    return dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)


def read_statistics(client: RedisClient, generation: Generation) -> StoreStatistics:
    """Returns the statistics of a generation.

    Raises:
        UnavailableError: a node does not answer.
    """
    _, slots = markers_of(generation)
    holders = [client.topology.holder_of(slot) for slot in slots]
    nodes = []
    for address, info in client.call_everywhere("INFO", "memory").items():
        facts = memory_facts(info)
        limit = int(facts.get("maxmemory", "0")) or None
        shards = sum(holder == address for holder in holders)
        nodes.append(
            NodeStatistics(address_text(address), int(facts["used_memory"]), limit, shards)
        )
    tables = tuple(
        TableStatistics(table.name, _bytes_a_row(client, PagedTable(generation, number), slots))
        for number, table in enumerate(generation.tables)
    )
    return StoreStatistics(tuple(nodes), tables)


def _bytes_a_row(client: RedisClient, table: PagedTable, slots: list[int]) -> float | None:
    """Returns the bytes of memory a row, from a sample of pages; None without rows."""
    step = max(1, len(slots) // _SAMPLED_SHARDS)
    parcels = []
    for shard in range(0, len(slots), step):
        for name in table.names(shard, 0, _SAMPLED_PAGES):
            asked = packed("MEMORY", "USAGE", name) + packed("STRLEN", name)
            parcels.append(Parcel(slots[shard], 2, asked))
    found: list[tuple[int, int]] = []

    def take(number: int, answers: list[Any]) -> None:
        del number
        found.append((answers[0] or 0, answers[1]))

    client.deliver(parcels, take)
    rows = sum(length for _, length in found) / table.record_bytes
    return sum(memory for memory, _ in found) / rows if rows else None
