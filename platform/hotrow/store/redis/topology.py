"""The server of each slot."""

from __future__ import annotations

import bisect
import contextlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from hotrow.errors import InvalidArgumentError, NotFoundError
from hotrow.store.redis.connections import Address, Connections, address_text
from hotrow.store.url import StoreKind, StoreUrl

SLOTS = 16384


@dataclass(frozen=True)
class SlotRange:
    """The server at `address` holds slots `first` to `last`."""

    first: int
    last: int
    address: Address


@dataclass(frozen=True)
class Topology:
    """The primaries of a store.

    Attributes:
        cluster: whether there may be more than one.
        ranges: sorted, without overlap; slots without a server are in none.
    """

    cluster: bool
    ranges: tuple[SlotRange, ...]

    @property
    def primaries(self) -> tuple[Address, ...]:
        """Each primary once, in the order of their first slots."""
        return tuple(dict.fromkeys(part.address for part in self.ranges))

    def holder_of(self, slot: int) -> Address | None:
        """Returns the primary of a slot; None: no known primary has it."""
        i = bisect.bisect_right(self.ranges, slot, key=lambda part: part.first) - 1
        return self.ranges[i].address if i >= 0 and slot <= self.ranges[i].last else None

    def as_json(self) -> dict[str, Any]:
        """Returns the topology in the form of the native reader."""
        nodes: dict[Address, list[list[int]]] = {}
        for part in self.ranges:
            nodes.setdefault(part.address, []).append([part.first, part.last])
        return {
            "cluster": self.cluster,
            "nodes": [{"address": address_text(a), "slots": s} for a, s in nodes.items()],
        }


def find_topology(
    url: StoreUrl, connections: Connections, known: Sequence[Address] = ()
) -> Topology:
    """Reads the topology from the store.

    Args:
        url: URL of the store.
        connections: connections to it.
        known: earlier primaries, queried besides the hosts of the URL.

    Raises:
        redis.RedisError: no server answers.
        NotFoundError: the sentinels have no such service.
        InvalidArgumentError: the URL names a cluster and the server is none, or the reverse.
    """
    if url.kind == StoreKind.SENTINEL:
        return _alone(_primary_by_sentinels(url, connections))
    if url.kind == StoreKind.CLUSTER:
        return _cluster(url, connections, known)
    address = (url.path, 0) if url.path else url.hosts[0]
    return _alone(address)


def ask(connection: Any, *command: object) -> Any:
    """Returns the answer to one command.

    Raises:
        redis.RedisError: the server refused, or the connection broke.
    """
    connection.send_command(*command)
    return connection.read_response()


def _alone(address: Address) -> Topology:
    return Topology(False, (SlotRange(0, SLOTS - 1, address),))


def _cluster(url: StoreUrl, connections: Connections, known: Iterable[Address]) -> Topology:
    addresses = list(dict.fromkeys((*known, *url.hosts)))
    # Not always from the same node: an isolated node has an old map.
    random.shuffle(addresses)
    error: Exception | None = None
    for address in addresses:
        try:
            with connections.to(address) as connection:
                answer = ask(connection, "CLUSTER", "SLOTS")
        except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError, OSError) as err:
            if "cluster support disabled" in str(err):
                raise InvalidArgumentError(
                    f"{url}: {address_text(address)} is no node of a cluster; a server that "
                    "stands alone is redis://HOST[:PORT]"
                ) from err
            error = err
            continue
        ranges = [
            # A node without a known name of its own sends none: it is the node that was queried.
            SlotRange(first, last, (_text(primary[0]) or address[0], primary[1]))
            for first, last, primary, *_ in answer
        ]
        if ranges:
            return Topology(True, tuple(sorted(ranges, key=lambda part: part.first)))
        error = redis.exceptions.ClusterDownError("no node holds any slot")
    assert error is not None
    raise error


def _primary_by_sentinels(url: StoreUrl, connections: Connections) -> Address:
    error: Exception = redis.ConnectionError("no sentinel answers")
    unknown = 0
    for address in url.hosts:
        try:
            answer = _ask_sentinel(connections, address, url.service)
        except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError, OSError) as err:
            error = err
            continue
        if answer is None:
            unknown += 1
            continue
        primary = _text(answer[0]), int(answer[1])
        # A sentinel that was down for a while may return a former primary.
        try:
            with connections.to(primary) as connection:
                role = _text(ask(connection, "ROLE")[0])
        except (redis.ConnectionError, redis.TimeoutError, OSError) as err:
            error = err
            continue
        if role == "master":
            return primary
        error = redis.ReadOnlyError(f"READONLY {address_text(primary)} is no primary any more")
    if unknown == len(url.hosts):
        raise NotFoundError(f"{url}: the sentinels know no service {url.service!r}")
    raise error


def _ask_sentinel(connections: Connections, address: Address, service: str) -> Any:
    command = "SENTINEL", "GET-MASTER-ADDR-BY-NAME", service
    with (
        contextlib.suppress(redis.AuthenticationError),
        connections.to_sentinel(address, with_password=False) as connection,
    ):
        return ask(connection, *command)
    with connections.to_sentinel(address, with_password=True) as connection:
        return ask(connection, *command)


def _text(value: Any) -> str:
    return "" if value is None else value.decode() if isinstance(value, bytes) else str(value)
