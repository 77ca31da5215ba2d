"""Commands to the primaries of a store: follows redirections and failovers, and retries.

The native core packs bulk data into bytes, with many commands at once, for all nodes in parallel.
redis-py's own cluster client sends one command after the other through its encoder, so this module
uses only its connections and keeps its own slot map.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis

from hotrow.errors import (
    FailedPreconditionError,
    HotrowError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from hotrow.store.access import StoreAccess
from hotrow.store.redis.connections import Address, Connections
from hotrow.store.redis.delivery import Delivery, Take
from hotrow.store.redis.functions import (
    READER_SOURCE,
    SWAP_LEASE,
    ReaderFunctionMissingError,
    is_missing,
    load_functions,
)
from hotrow.store.redis.parcel import Parcel
from hotrow.store.redis.refusals import is_on_the_move, is_passing, refusal
from hotrow.store.redis.topology import Topology, ask, find_topology
from hotrow.store.redis.waiting import Waiting
from hotrow.store.url import StoreKind, StoreUrl

PATIENCE_SECONDS = 30.0
"""How long nothing at all may succeed: longer than a failover takes."""

_MOST_NODES_AT_ONCE = 32


class RedisClient:
    """Sends commands to the primaries of slots. Thread-safe.

    Attributes:
        url: URL of the store.
        connections: connections to its servers.
        workers: threads for work on several servers at once.
    """

    def __init__(
        self, url: StoreUrl, access: StoreAccess, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Connects.

        Raises:
            UnavailableError: no server answers; it does not retry.
            PermissionDeniedError: the user is refused.
            InvalidArgumentError: the URL does not fit the server.
        """
        self.url = url
        self.connections = Connections(url, access)
        self.workers = ThreadPoolExecutor(_MOST_NODES_AT_ONCE, "hotrow-redis")
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        try:
            self._topology = find_topology(url, self.connections)
            self._check_kind()
        except (redis.RedisError, OSError) as err:
            self.close()
            raise refusal(url, err) from err
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes all connections."""
        self.workers.shutdown()
        self.connections.close()

    @property
    def topology(self) -> Topology:
        """The latest known topology."""
        return self._topology

    def refresh(self) -> Topology:
        """Reads the topology again and returns it.

        Raises:
            HotrowError: no server answers.
        """
        try:
            self._refresh()
        except (redis.RedisError, OSError) as err:
            raise refusal(self.url, err) from err
        return self._topology

    def call(self, slot: int, *command: bytes | str | int) -> Any:
        """Returns the answer to a command about keys of a slot; it may be sent twice.

        Raises:
            UnavailableError: no server answered in time.
            HotrowError: the server refused the command; see `refusal`.
        """
        answer, _ = self.call_once_or_more(slot, *command)
        return answer

    def call_once_or_more(self, slot: int, *command: bytes | str | int) -> tuple[Any, bool]:
        """As `call`; also returns whether an earlier try may have taken effect.

        Raises:
            HotrowError: as for `call`.
        """
        waiting = self.waiting()
        asked: Address | None = None
        uncertain = False
        while True:
            address = asked or self._topology.holder_of(slot)
            try:
                if address is None:
                    raise redis.exceptions.ClusterDownError("CLUSTERDOWN no node holds it")
                with self.connections.to(address) as connection:
                    if asked:
                        ask(connection, "ASKING")
                    return ask(connection, *command), uncertain
            except (redis.RedisError, OSError) as err:
                if is_missing(err) and SWAP_LEASE in command:
                    raise ReaderFunctionMissingError(
                        f"{self.url}: has no function {SWAP_LEASE}; an export with this version of "
                        "Hotrow loads it"
                    ) from err
                uncertain = uncertain or not isinstance(err, redis.ResponseError)
                asked = _target_of_ask(err, address)
                if asked is None and self.overcome(err, address):
                    waiting.pause(err)
                else:
                    waiting.check(err)

    def call_everywhere(self, *command: bytes | str | int) -> dict[Address, Any]:
        """Returns the answer of each primary, with its address.

        Raises:
            HotrowError: as for `call`.
        """
        slots = self._first_slots()
        return {address: self.call(slot, *command) for address, slot in slots.items()}

    def load_reader_function(self) -> None:
        """Loads the function of readers into each primary that lacks it.

        A full node takes it later.

        Raises:
            HotrowError: as for `call`.
        """
        for slot in self._first_slots().values():
            try:
                self.call(slot, "FUNCTION", "LOAD", READER_SOURCE)
            except ResourceExhaustedError:
                continue
            except FailedPreconditionError as err:
                if "already exists" not in str(err):
                    raise

    def _first_slots(self) -> dict[Address, int]:
        """Returns a slot of each primary."""
        slots: dict[Address, int] = {}
        for part in self._topology.ranges:
            slots.setdefault(part.address, part.first)
        return slots

    def deliver(self, parcels: Sequence[Parcel], take: Take = lambda number, answers: None) -> None:
        """Sends parcels to all nodes in parallel, until each is answered.

        Args:
            parcels: in any order; parcels to one node keep their order.
            take: called with the number of a parcel and its answers, from several threads; once
                each.

        Raises:
            UnavailableError: no server answered in time.
            HotrowError: a server refused a parcel, or `take` raised.
        """
        Delivery(self, parcels, take).run()

    def waiting(self) -> Waiting:
        """Returns the retry state of one call."""
        return Waiting(self.url, self._patience_seconds)

    def overcome(self, err: Exception, address: Address | None) -> bool:
        """Handles an error so that a retry may succeed, or raises Hotrow's error.

        Args:
            err: an error of redis-py.
            address: the server that returned it.

        Returns:
            Whether to wait before the next try.
        """
        if is_missing(err) and address is not None:
            try:
                with self.connections.to(address) as connection:
                    load_functions(connection)
                return False
            except (redis.RedisError, OSError) as failure:
                err = failure
        if not is_passing(err):
            raise refusal(self.url, err) from err
        if isinstance(err, redis.exceptions.MovedError) and self.url.kind == StoreKind.STANDALONE:
            raise _is_cluster(self.url)
        if not is_on_the_move(err):
            try:
                self._refresh()
            except (redis.RedisError, OSError) as failure:
                if not is_passing(failure):
                    raise refusal(self.url, failure) from failure
        return True

    def _refresh(self) -> None:
        with self._lock:
            known = self._topology.primaries
            self._topology = find_topology(self.url, self.connections, known)

    def _check_kind(self) -> None:
        if self.url.kind != StoreKind.STANDALONE:
            return
        with self.connections.to(self._topology.primaries[0]) as connection:
            info = ask(connection, "INFO", "cluster")
        if b"cluster_enabled:1" in info:
            raise _is_cluster(self.url)


def _target_of_ask(err: Exception, address: Address | None) -> Address | None:
    """Returns the target of an ASK redirection; None: the error is not one."""
    if not is_on_the_move(err) or not isinstance(err, redis.exceptions.AskError):
        return None
    assert address is not None  # of the server that answered
    return err.host or address[0], int(err.port)


def _is_cluster(url: StoreUrl) -> HotrowError:
    return InvalidArgumentError(
        f"{url}: is a node of a cluster; give redis+cluster://HOST[:PORT],..."
    )
