"""Waits until the replicas of Redis have what was written."""

from __future__ import annotations

from collections.abc import Sequence

import redis

from hotrow.errors import UnavailableError
from hotrow.store.redis.client import RedisClient
from hotrow.store.redis.connections import Address, address_text
from hotrow.store.redis.refusals import refusal
from hotrow.store.redis.topology import ask

_WAIT_MS = 5000
# Of the key that is written: WAIT counts from the last write over its own connection.
_KEY_SECONDS = 60


def await_replicas(
    client: RedisClient, keys: Sequence[tuple[int, bytes | str]], replicas: int
) -> None:
    """Returns when replicas have all that was written to some nodes before this call.

    Args:
        client: of the store.
        keys: (slot, free name in it); each node that holds one is waited for.
        replicas: how many of each node.

    Raises:
        UnavailableError: a node does not answer, or fewer replicas have it after 5 s.
    """
    nodes: dict[Address, bytes | str] = {}
    for slot, name in keys:
        address = client.topology.holder_of(slot)
        if address is None:
            raise UnavailableError(f"{client.url}: no node has slot {slot}")
        nodes.setdefault(address, name)
    for address, name in nodes.items():
        try:
            with client.connections.to(address) as connection:
                ask(connection, "SET", name, "", "EX", _KEY_SECONDS)
                there = int(ask(connection, "WAIT", replicas, _WAIT_MS))
        except (redis.RedisError, OSError) as err:
            raise refusal(client.url, err) from err
        if there < replicas:
            raise UnavailableError(
                f"{client.url}: {there} replicas of {address_text(address)} have what was written, "
                f"--store_wait_replicas asks for {replicas}; export again when they have caught up"
            )
