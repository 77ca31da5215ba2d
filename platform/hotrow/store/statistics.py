"""Statistics of a generation in a store: memory, and its distribution over the nodes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NodeStatistics:
    """A primary.

    Attributes:
        address: `host:port` or `unix:/path`.
        used_bytes: memory of all its data.
        limit_bytes: `maxmemory`; None: no limit.
        shards: number of the generation's shards on it.
    """

    address: str
    used_bytes: int
    limit_bytes: int | None
    shards: int


@dataclass(frozen=True)
class TableStatistics:
    """A table.

    Attributes:
        name: of the table.
        bytes_a_row: memory of a row with all overhead of Redis, from a sample of pages; None: the
            sample has no rows.
    """

    name: str
    bytes_a_row: float | None


@dataclass(frozen=True)
class StoreStatistics:
    """Statistics of a generation.

    Attributes:
        nodes: all primaries.
        tables: in the order of their numbers.
    """

    nodes: tuple[NodeStatistics, ...]
    tables: tuple[TableStatistics, ...]
