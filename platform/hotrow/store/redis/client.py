"""Commands to the primaries of a store, wherever they are: redirections, failovers, patience.

Bulk data goes out as bytes that the native core packed, many commands at once and to all nodes
side by side. redis-py's own cluster client sends one command after the other through its encoder,
so only its connections are used here, and the slot map is kept beside them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis

from hotrow.errors import HotrowError, InvalidArgumentError
from hotrow.store.access import StoreAccess
from hotrow.store.redis.connections import Address, Connections
from hotrow.store.redis.functions import is_missing, load_functions
from hotrow.store.redis.parcel import Parcel, unpacked
from hotrow.store.redis.refusals import is_passing, refusal
from hotrow.store.redis.topology import Topology, ask, find_topology
from hotrow.store.url import StoreKind, StoreUrl

PATIENCE_SECONDS = 30.0
"""How long nothing at all may succeed: longer than a failover takes."""

_WINDOW_BYTES = 1 << 20
_MOST_NODES_AT_ONCE = 32
_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.5

Trouble = tuple[int, Exception]
"""The number of a parcel, and why it must be sent again."""

Take = Callable[[int, list[Any]], None]


class RedisClient:
    """Sends commands to the holders of slots. Safe from threads.

    Attributes:
        url: of the store.
    """

    def __init__(
        self, url: StoreUrl, access: StoreAccess, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Connects.

        Raises:
            UnavailableError: nobody answers; no second try. PermissionDeniedError: the user is
                refused. InvalidArgumentError: the URL does not fit what is there.
        """
        self.url = url
        self._patience_seconds = patience_seconds
        self._connections = Connections(url, access)
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(_MOST_NODES_AT_ONCE, "hotrow-redis")
        try:
            self._topology = find_topology(url, self._connections)
            self._check_kind()
        except (redis.RedisError, OSError) as err:
            self.close()
            raise refusal(url, err) from err
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes all connections."""
        self._workers.shutdown()
        self._connections.close()

    @property
    def topology(self) -> Topology:
        """The latest one known."""
        return self._topology

    def refresh(self) -> Topology:
        """Asks for the topology and returns it.

        Raises:
            HotrowError: nobody answers.
        """
        try:
            self._refresh()
        except (redis.RedisError, OSError) as err:
            raise refusal(self.url, err) from err
        return self._topology

    def call(self, slot: int, *command: bytes | str | int) -> Any:
        """Returns the answer to a command about keys of a slot; it may be sent twice.

        Raises:
            UnavailableError: nobody answered for long.
            HotrowError: the server refused it; see `refusal`.
        """
        answer, _ = self.call_once_or_more(slot, *command)
        return answer

    def call_once_or_more(self, slot: int, *command: bytes | str | int) -> tuple[Any, bool]:
        """The same; returns also whether an earlier try may have been carried out.

        Raises:
            HotrowError: as for `call`.
        """
        waiting = _Waiting(self.url, self._patience_seconds)
        asked: Address | None = None
        uncertain = False
        while True:
            address = asked or self._topology.holder_of(slot)
            try:
                if address is None:
                    raise redis.exceptions.ClusterDownError("CLUSTERDOWN a slot is not served")
                with self._connections.to(address) as connection:
                    if asked:
                        ask(connection, "ASKING")
                    return ask(connection, *command), uncertain
            except (redis.RedisError, OSError) as err:
                uncertain = uncertain or not isinstance(err, redis.ResponseError)
                asked = self._asked_address(err, address)
                if asked is None:
                    self._overcome(err, address, waiting)

    def call_everywhere(self, *command: bytes | str | int) -> dict[Address, Any]:
        """Returns the answer of each primary, with its address.

        Raises:
            HotrowError: as for `call`.
        """
        first_slot: dict[Address, int] = {}
        for part in self._topology.ranges:
            first_slot.setdefault(part.address, part.first)
        return {address: self.call(slot, *command) for address, slot in first_slot.items()}

    def deliver(self, parcels: Sequence[Parcel], take: Take = lambda number, answers: None) -> None:
        """Sends parcels, to all nodes side by side, until each is answered.

        Args:
            parcels: in any order; parcels to one node go in their order.
            take: gets the number of a parcel and its answers, from several threads; once each.

        Raises:
            UnavailableError: nobody answered for long.
            HotrowError: a server refused one, or `take` raised.
        """
        waiting = _Waiting(self.url, self._patience_seconds)
        pending: Iterable[int] = range(len(parcels))
        while True:
            by_holder: dict[Address | None, list[int]] = {}
            for number in pending:
                by_holder.setdefault(self._topology.holder_of(parcels[number].slot), []).append(
                    number
                )
            lost = by_holder.pop(None, [])
            down = redis.exceptions.ClusterDownError("CLUSTERDOWN a slot is not served")
            troubles: list[tuple[Address | None, Trouble]] = [(None, (n, down)) for n in lost]
            runs = {
                address: self._workers.submit(self._send_all, address, parcels, numbers, take)
                for address, numbers in by_holder.items()
                if address is not None
            }
            # All are waited for, so that nothing is on its way when an error is raised.
            failures = [run.exception() for run in runs.values()]
            for failure in filter(None, failures):
                raise failure
            for address, run in runs.items():
                troubles += [(address, trouble) for trouble in run.result()]
            if not troubles:
                return
            if len(troubles) < sum(map(len, by_holder.values())) + len(lost):
                waiting.begin_anew()
            pending = self._after(troubles, parcels, take, waiting)

    def _after(
        self,
        troubles: list[tuple[Address | None, Trouble]],
        parcels: Sequence[Parcel],
        take: Take,
        waiting: _Waiting,
    ) -> list[int]:
        """Overcomes troubles, and returns which parcels are to be sent again."""
        again = []
        others: dict[tuple[Address | None, type[Exception]], Exception] = {}
        for address, (number, error) in troubles:
            # A slot on the move: what is there of a parcel's keys is partly here, partly there.
            if _on_the_move(error):
                take(number, self._one_by_one(parcels[number]))
                waiting.begin_anew()
            else:
                again.append(number)
                others.setdefault((address, type(error)), error)
        for (address, _), error in others.items():
            self._overcome(error, address, waiting, pause=False)
        if others:
            waiting.pause(next(iter(others.values())))
        return again

    def _one_by_one(self, parcel: Parcel) -> list[Any]:
        """Returns the answers of a parcel whose keys are asked for each by itself."""
        answers: list[Any] = []
        for name, *parts in unpacked(parcel.payload):
            if name == b"MSET":
                for key, value in zip(parts[::2], parts[1::2], strict=True):
                    self.call(parcel.slot, b"SET", key, value)
                answers.append(b"OK")
            elif name == b"MGET":
                answers.append([self.call(parcel.slot, b"GET", key) for key in parts])
            elif name in (b"UNLINK", b"EXISTS"):
                answers.append(sum(self.call(parcel.slot, name, key) for key in parts))
            else:
                answers.append(self.call(parcel.slot, name, *parts))
        return answers

    def _send_all(
        self, address: Address, parcels: Sequence[Parcel], numbers: list[int], take: Take
    ) -> list[Trouble]:
        """Sends parcels to one node, a window ahead of their answers."""
        troubles: list[Trouble] = []
        unanswered: list[list[int]] = []
        todo = iter(_windows(parcels, numbers))
        rest: list[list[int]] = []
        try:
            with self._connections.to(address) as connection:
                for window in todo:
                    unanswered.append(window)
                    connection.send_packed_command([parcels[n].payload for n in window])
                    if len(unanswered) > 1:
                        self._receive(connection, parcels, unanswered, troubles, take)
                while unanswered:
                    self._receive(connection, parcels, unanswered, troubles, take)
        except (redis.ConnectionError, redis.TimeoutError, OSError) as err:
            rest = [*unanswered, *todo]
            troubles += [(number, err) for window in rest for number in window]
        return troubles

    def _receive(
        self,
        connection: Any,
        parcels: Sequence[Parcel],
        unanswered: list[list[int]],
        troubles: list[Trouble],
        take: Take,
    ) -> None:
        window = unanswered[0]
        while window:
            answers, error = _answers(connection, parcels[window[0]].commands)
            number = window.pop(0)
            if error is None:
                take(number, answers)
            elif is_passing(error) or is_missing(error):
                troubles.append((number, error))
            else:
                raise refusal(self.url, error) from error
        del unanswered[0]

    def _overcome(
        self, err: Exception, address: Address | None, waiting: _Waiting, pause: bool = True
    ) -> None:
        """Does what makes the next try better, or raises what the user is to know."""
        if is_missing(err) and address is not None:
            try:
                with self._connections.to(address) as connection:
                    load_functions(connection)
            except (redis.RedisError, OSError) as failure:
                err = failure
            else:
                waiting.count(err)
                return
        if not is_passing(err):
            raise refusal(self.url, err) from err
        if isinstance(err, redis.exceptions.MovedError) and self.url.kind == StoreKind.STANDALONE:
            raise _is_cluster(self.url)
        if not _on_the_move(err):
            try:
                self._refresh()
            except (redis.RedisError, OSError) as failure:
                err = failure
        if pause:
            waiting.pause(err)

    def _refresh(self) -> None:
        with self._lock:
            known = self._topology.primaries
            self._topology = find_topology(self.url, self._connections, known)

    def _asked_address(self, err: Exception, address: Address | None) -> Address | None:
        if type(err) is not redis.exceptions.AskError or address is None:
            return None
        return err.host or address[0], int(err.port)

    def _check_kind(self) -> None:
        if self.url.kind != StoreKind.STANDALONE:
            return
        with self._connections.to(self._topology.primaries[0]) as connection:
            info = ask(connection, "INFO", "cluster")
        if b"cluster_enabled:1" in info:
            raise _is_cluster(self.url)


class _Waiting:
    """Pauses between tries, which grow, and an end."""

    def __init__(self, url: StoreUrl, seconds: float) -> None:
        self._url = url
        self._seconds = seconds
        self.begin_anew()

    def begin_anew(self) -> None:
        self._end = time.monotonic() + self._seconds
        self._next = _FIRST_PAUSE_SECONDS

    def count(self, err: Exception) -> None:
        """Raises if the time is over."""
        if time.monotonic() >= self._end:
            raise refusal(self._url, err) from err

    def pause(self, err: Exception) -> None:
        self.count(err)
        time.sleep(self._next)
        self._next = min(2 * self._next, _LONGEST_PAUSE_SECONDS)


def _windows(parcels: Sequence[Parcel], numbers: list[int]) -> Iterable[list[int]]:
    window: list[int] = []
    weight = 0
    for number in numbers:
        window.append(number)
        weight += parcels[number].weight
        if weight >= _WINDOW_BYTES:
            yield window
            window, weight = [], 0
    if window:
        yield window


def _answers(connection: Any, count: int) -> tuple[list[Any], Exception | None]:
    """Returns the answers of a parcel, and the first that is an error."""
    answers = []
    error: Exception | None = None
    for _ in range(count):
        try:
            answers.append(connection.read_response())
        except redis.ResponseError as err:
            error = error or err
    return answers, error


def _on_the_move(err: Exception) -> bool:
    return isinstance(err, redis.exceptions.TryAgainError) or type(err) is (
        redis.exceptions.AskError
    )


def _is_cluster(url: StoreUrl) -> HotrowError:
    return InvalidArgumentError(
        f"{url}: is a node of a cluster; give redis+cluster://HOST[:PORT],..."
    )
