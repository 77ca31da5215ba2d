"""Generations of rows in Redis; see `hotrow.store.row_store.RowStore`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hotrow import _native
from hotrow.errors import FailedPreconditionError
from hotrow.store.access import StoreAccess
from hotrow.store.redis import staging
from hotrow.store.redis.announcements import Announcements, Announcer
from hotrow.store.redis.client import PATIENCE_SECONDS, RedisClient
from hotrow.store.redis.connections import address_text
from hotrow.store.redis.deleting import delete_rows
from hotrow.store.redis.digests import read_digests
from hotrow.store.redis.layout import PagedTable, markers_of, pages_of
from hotrow.store.redis.parcel import Parcel, packed
from hotrow.store.redis.putting import put_rows
from hotrow.store.redis.reading import read_rows
from hotrow.store.redis.records import KEY, SLOT, RedisRecords
from hotrow.store.redis.replicas import await_replicas
from hotrow.store.redis.statistics import memory_facts, read_statistics
from hotrow.store.row_store import (
    BLOCK_BYTES,
    Keys,
    Place,
    Records,
    Rows,
    ShardDigests,
    States,
    Versions,
)
from hotrow.store.spec import Generation
from hotrow.store.statistics import StoreStatistics
from hotrow.store.url import StoreUrl

_VERSION = struct.Struct("<Q")


class RedisStore:
    """A `RowStore` in Redis.

    Attributes:
        url: URL of the store, without a password.
        records: its control records.
        client: client of the servers.
    """

    def __init__(
        self, url: StoreUrl, access: StoreAccess, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Connects.

        Args:
            url: URL of Redis.
            access: credentials.
            patience_seconds: how long a call waits for a failover.

        Raises:
            HotrowError: as for `RedisClient`.
        """
        self.url = str(url)
        self._wait_replicas = access.wait_replicas
        self.client = RedisClient(url, access, patience_seconds)
        self.records: Records = RedisRecords(self.client)
        self._announcer = Announcer(self.client)

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()

    def topology(self) -> dict[str, Any]:
        """Returns the current server of each slot, as JSON types, for the native reader.

        `{"cluster": bool, "nodes": [{"address": "host:port" | "unix:/path",
        "slots": [[first, last], ...]}]}`

        Raises:
            HotrowError: no server answers.
        """
        return self.client.refresh().as_json()

    def statistics(self, generation: Generation) -> StoreStatistics:
        """Returns the memory of a generation, and its distribution over the nodes.

        Raises:
            UnavailableError: a node does not answer.
        """
        return read_statistics(self.client, generation)

    def check_safe_for_rows(self) -> None:
        """Checks that no server evicts rows when it is full; see the contract."""
        for address, info in self.client.call_everywhere("INFO", "memory").items():
            facts = memory_facts(info)
            policy = facts.get("maxmemory_policy", "noeviction")
            if facts.get("maxmemory", "0") != "0" and policy != "noeviction":
                raise FailedPreconditionError(
                    f"{self.url}: {address_text(address)} drops rows when it is full "
                    f"(maxmemory-policy {policy}); set maxmemory-policy noeviction, or another "
                    "Redis for rows"
                )

    def pages_of(self, record_bytes: int, rows: int, shards: int) -> int:
        """Returns P for a table of this many rows and this size of a record."""
        return pages_of(record_bytes, rows, shards)

    def begin(self, generation: Generation) -> None:
        """Does nothing: the first rows create the pages."""

    def write(
        self,
        generation: Generation,
        table: int,
        keys: Keys,
        rows: Rows,
        shards: Collection[int] | None = None,
    ) -> None:
        """Writes rows of a generation that no server reads yet; see the contract."""
        _, slots = markers_of(generation)
        place = generation.shards, generation.number, table, generation.tables[table].pages
        only = None if shards is None else sorted(shards)
        parts = _native.pack_pages(keys, rows, generation.row_version, *place, only)
        self.client.deliver([Parcel(slots[s], n, payload) for s, n, payload in parts])

    def put(
        self, generation: Generation, table: int, keys: Keys, rows: Rows, versions: Versions
    ) -> int:
        """Writes rows of a generation that servers read, each only over an older version.

        Rows written before a connection broke are not counted a second time.
        """
        return put_rows(self.client, PagedTable(generation, table), keys, rows, versions)

    def digests(
        self, generation: Generation, table: int, shards: Collection[int] | None = None
    ) -> ShardDigests:
        """Returns the digests of each shard; see the contract."""
        chosen = range(generation.shards) if shards is None else sorted(shards)
        return read_digests(self.client, PagedTable(generation, table), chosen)

    def set_markers(self, generation: Generation, digests: list[ShardDigests]) -> None:
        """Marks every shard as whole, with the digests [V, 3] of each table."""
        markers, slots = markers_of(generation)
        version = _VERSION.pack(generation.row_version)
        parcels = []
        for shard, marker in enumerate(markers):
            fields: list[bytes | str] = ["wm", version]
            for number, sums in enumerate(digests):
                fields += [str(number), sums[shard].astype("<u8").tobytes()]
            parcels.append(Parcel(slots[shard], 1, packed("HSET", marker, *fields)))
        self.client.deliver(parcels)

    def missing_markers(self, generation: Generation) -> list[int]:
        """Returns the shards that are not marked as whole."""
        markers, slots = markers_of(generation)
        missing: list[int] = []

        def take(shard: int, answers: list[Any]) -> None:
            if answers[0] == 0:
                missing.append(shard)

        asked = [packed("EXISTS", marker) for marker in markers]
        parcels = [Parcel(slot, 1, ask) for slot, ask in zip(slots, asked, strict=True)]
        self.client.deliver(parcels, take)
        return sorted(missing)

    def delete_rows(
        self, generation: Generation, report: Callable[[int, int], None] = lambda done, of: None
    ) -> None:
        """Deletes markers and rows in small steps; see the contract."""
        delete_rows(self.client, generation, report)

    def stage(self, generation: Generation, version: int, blocks: Mapping[Place, bytes]) -> None:
        """Writes blocks of a cut; see the contract."""
        staging.stage(self.client, generation, version, blocks)

    def staged(
        self,
        generation: Generation,
        version: int,
        places: Sequence[Place],
        block_bytes: int = BLOCK_BYTES,
    ) -> list[bytes | None]:
        """Returns blocks of a cut; see the contract."""
        return staging.staged(self.client, generation, version, places, block_bytes)

    def unstage(
        self,
        generation: Generation,
        version: int,
        places: Sequence[Place],
        *,
        others_stay: bool = False,
    ) -> None:
        """Deletes blocks of a cut; see the contract."""
        staging.unstage(self.client, generation, version, places)

    def await_replicas(self, generation: Generation) -> None:
        """Returns when replicas have all that was written; see the contract."""
        if self._wait_replicas:
            markers, slots = markers_of(generation)
            own = [(slot, marker + b"!wait") for slot, marker in zip(slots, markers, strict=True)]
            await_replicas(self.client, [(SLOT, f"{KEY}!wait"), *own], self._wait_replicas)

    def announce(self, model: str) -> None:
        """Wakes up those who wait for announcements of a model; see the contract."""
        self._announcer.announce(model)

    def announcements(self, model: str, wake: Callable[[], None]) -> Announcements:
        """Calls `wake` after each announcement of a model; see the contract."""
        return Announcements(self.client, model, wake)

    def watermarks(self, generation: Generation) -> Versions:
        """Returns, for each shard, the last version folded into it; see the contract."""
        return staging.watermarks(self.client, generation)

    def set_watermarks(
        self, generation: Generation, version: int, shards: Sequence[int], least: int = 0
    ) -> None:
        """Records that a cut was folded into shards; see the contract."""
        staging.set_watermarks(self.client, generation, version, shards, least)

    def read(self, generation: Generation, table: int, keys: Keys) -> tuple[Rows, Versions, States]:
        """Returns rows, versions and states of keys; see the contract."""
        return read_rows(self.client, PagedTable(generation, table), keys)
