"""Deletes a generation slowly, with little effect on Redis' other clients."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from hotrow.store.redis.client import RedisClient
from hotrow.store.redis.layout import PagedTable, markers_of
from hotrow.store.redis.parcel import Parcel, packed
from hotrow.store.spec import Generation

# About 0.05 ms, in which the server does nothing else; then it rests.
_PAGES_AT_ONCE = 128
_SHORTEST_REST_SECONDS = 0.001


def delete_rows(
    client: RedisClient, generation: Generation, report: Callable[[int, int], None]
) -> None:
    """Deletes markers, then rows; returns when all are deleted.

    Args:
        client: client of the store.
        generation: the generation.
        report: called with (done, of), in shards times tables.

    Raises:
        UnavailableError: a node does not answer; call it again.
    """
    markers, slots = markers_of(generation)
    # Markers first, so that a reader takes missing rows for lost ones and not for unknown keys.
    client.deliver(
        [Parcel(slots[s], 1, packed("UNLINK", marker)) for s, marker in enumerate(markers)]
    )
    of = generation.shards * len(generation.tables)
    done = 0
    queues: dict[object, deque[tuple[int, int, int]]] = {}
    for shard in range(generation.shards):
        queue = queues.setdefault(client.topology.holder_of(slots[shard]), deque())
        queue.extend((shard, table, 0) for table in range(len(generation.tables)))
    while waiting := [queue for queue in queues.values() if queue]:
        parcels = []
        for queue in waiting:
            shard, number, first = queue.popleft()
            table = PagedTable(generation, number)
            if table.pages == 0:
                done += 1
                continue
            names = table.names(shard, first, _PAGES_AT_ONCE)
            parcels.append(Parcel(slots[shard], 1, packed("UNLINK", *names)))
            if first + len(names) < table.pages:
                queue.appendleft((shard, number, first + len(names)))
            else:
                done += 1
        began = time.monotonic()
        client.deliver(parcels)
        time.sleep(max(_SHORTEST_REST_SECONDS, time.monotonic() - began))
        report(done, of)
