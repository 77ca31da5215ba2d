"""One delivery of many commands to the nodes of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import redis

from hotrow.store.redis.connections import Address, Connections
from hotrow.store.redis.functions import is_missing
from hotrow.store.redis.parcel import Parcel, unpacked
from hotrow.store.redis.refusals import is_on_the_move, is_passing, refusal
from hotrow.store.redis.topology import Topology
from hotrow.store.redis.waiting import Waiting
from hotrow.store.url import StoreUrl

_WINDOW_BYTES = 1 << 20

Take = Callable[[int, list[Any]], None]
Trouble = tuple[int, Address | None, Exception]
"""The number of a parcel that must be sent again, where it was sent to, and why."""


class Sender(Protocol):
    """The part of `RedisClient` that a delivery needs."""

    url: StoreUrl
    workers: ThreadPoolExecutor
    connections: Connections

    @property
    def topology(self) -> Topology:
        """The known nodes and their slots."""

    def waiting(self) -> Waiting:
        """Returns the retry state of one call."""

    def overcome(self, error: Exception, address: Address | None) -> bool:
        """Handles a transient error; returns whether to wait before the next try."""

    def call(self, slot: int, *command: bytes | str | int) -> Any:
        """Returns the answer to one command."""


class Delivery:
    """Sends parcels until each is answered; see `RedisClient.deliver`."""

    def __init__(self, client: Sender, parcels: Sequence[Parcel], take: Take) -> None:
        self._client = client
        self._parcels = parcels
        self._take = take
        self._waiting = client.waiting()

    def run(self) -> None:
        """Returns when all parcels are answered.

        Raises:
            HotrowError: see `RedisClient.deliver`.
        """
        pending: Sequence[int] = range(len(self._parcels))
        while pending:
            troubles = self._round(pending)
            if len(troubles) < len(pending):
                self._waiting.begin_anew()
            pending = self._overcome(troubles)

    def _round(self, pending: Iterable[int]) -> list[Trouble]:
        """Sends each parcel once; returns the parcels to send again."""
        by_holder: dict[Address | None, list[int]] = {}
        topology = self._client.topology
        for number in pending:
            by_holder.setdefault(topology.holder_of(self._parcels[number].slot), []).append(number)
        unheld = redis.exceptions.ClusterDownError("CLUSTERDOWN no node holds the slot")
        troubles: list[Trouble] = [(n, None, unheld) for n in by_holder.pop(None, [])]
        work = [(a, numbers) for a, numbers in by_holder.items() if a is not None]
        runs = [self._client.workers.submit(self._send, *some) for some in work[1:]]
        # One part in this thread, with its priority: most stores have one node.
        runs += [_done(self._send, *some) for some in work[:1]]
        # Waits for all, so that no parcel is in flight when an error is raised.
        failures = [run.exception() for run in runs]
        for failure in filter(None, failures):
            raise failure
        return [*troubles, *(trouble for run in runs for trouble in run.result())]

    def _overcome(self, troubles: list[Trouble]) -> list[int]:
        """Handles each kind of trouble; returns the parcels to send again."""
        again = []
        others: dict[tuple[Address | None, type[Exception]], Exception] = {}
        for number, address, error in troubles:
            # A migrating slot: some keys of the parcel may be on this node, others on the target.
            if is_on_the_move(error):
                self._take(number, self._one_by_one(self._parcels[number]))
                self._waiting.begin_anew()
            else:
                again.append(number)
                others.setdefault((address, type(error)), error)
        wait = [error for (a, _), error in others.items() if self._client.overcome(error, a)]
        if wait:
            self._waiting.pause(wait[0])
        elif others:
            self._waiting.check(next(iter(others.values())))
        return again

    def _one_by_one(self, parcel: Parcel) -> list[Any]:
        """Returns the answers of a parcel whose keys are sent one by one."""
        call, slot = self._client.call, parcel.slot
        answers: list[Any] = []
        for name, *parts in unpacked(parcel.payload):
            if name == b"MSET":
                for key, value in zip(parts[::2], parts[1::2], strict=True):
                    call(slot, b"SET", key, value)
                answers.append(b"OK")
            elif name == b"MGET":
                answers.append([call(slot, b"GET", key) for key in parts])
            elif name in (b"UNLINK", b"EXISTS"):
                answers.append(sum(call(slot, name, key) for key in parts))
            else:
                answers.append(call(slot, name, *parts))
        return answers

    def _send(self, address: Address, numbers: list[int]) -> list[Trouble]:
        """Sends parcels to one node, a window ahead of their answers."""
        troubles: list[Trouble] = []
        unanswered: list[list[int]] = []
        todo = self._windows(numbers)
        try:
            with self._client.connections.to(address) as connection:
                for window in todo:
                    unanswered.append(window)
                    payloads = [self._parcels[number].payload for number in window]
                    # As one: redis-py makes a system call for each.
                    connection.send_packed_command([b"".join(payloads)])
                    if len(unanswered) > 1:
                        self._receive(connection, address, unanswered, troubles)
                while unanswered:
                    self._receive(connection, address, unanswered, troubles)
        except (redis.RedisError, OSError) as err:
            left = [number for window in (*unanswered, *todo) for number in window]
            troubles += [(number, address, err) for number in left]
        return troubles

    def _receive(
        self,
        connection: Any,
        address: Address,
        unanswered: list[list[int]],
        troubles: list[Trouble],
    ) -> None:
        """Receives the answers of the oldest window, and removes it."""
        window = unanswered[0]
        while window:
            answers, error = _answers(connection, self._parcels[window[0]].commands)
            number = window.pop(0)
            if error is None:
                self._take(number, answers)
            elif is_passing(error) or is_missing(error):
                troubles.append((number, address, error))
            else:
                raise refusal(self._client.url, error) from error
        del unanswered[0]

    def _windows(self, numbers: list[int]) -> Iterator[list[int]]:
        window: list[int] = []
        weight = 0
        for number in numbers:
            window.append(number)
            weight += self._parcels[number].weight
            if weight >= _WINDOW_BYTES:
                yield window
                window, weight = [], 0
        if window:
            yield window


def _done(
    send: Callable[[Address, list[int]], list[Trouble]], address: Address, numbers: list[int]
) -> Future[list[Trouble]]:
    """Returns what a call returned or raised, as if another thread had made it."""
    done: Future[list[Trouble]] = Future()
    try:
        done.set_result(send(address, numbers))
    except Exception as err:
        done.set_exception(err)
    return done


def _answers(connection: Any, count: int) -> tuple[list[Any], Exception | None]:
    """Returns the answers of a parcel, and the first error among them."""
    answers = []
    error: Exception | None = None
    for _ in range(count):
        try:
            answers.append(connection.read_response())
        except redis.ResponseError as err:
            error = error or err
    return answers, error
