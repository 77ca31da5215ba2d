"""What a generation takes in a store: memory, and how evenly it lies on the nodes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NodeStatistics:
    """A primary.

    Attributes:
        address: `host:port` or `unix:/path`.
        used_bytes: of all that it holds.
        limit_bytes: `maxmemory`; None: there is none.
        shards: of the generation's, how many it holds.
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
        bytes_a_row: with all that Redis keeps about it, from a sample of pages; None: the sample
            has no rows.
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
