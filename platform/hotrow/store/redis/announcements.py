"""Messages that wake up the followers of a model's cuts: sharded publish and subscribe.

A message says only that there is something new. A lost one costs the time until the next look.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import redis

from hotrow.errors import HotrowError, PermissionDeniedError
from hotrow.store.redis.client import RedisClient
from hotrow.store.redis.records import KEY, SLOT
from hotrow.store.redis.refusals import refusal
from hotrow.store.redis.topology import ask

_LOG = logging.getLogger(__name__)

# A thread that waits for messages notices so soon that it is to end.
_CLOSE_SECONDS = 0.2
# A subscription is repeated after this time: a connection may die without a word.
_REPEAT_SECONDS = 5.0
# Between two tries to subscribe; doubled while they fail.
_RETRY_SECONDS = 0.1
_LONGEST_RETRY_SECONDS = 5.0
# After a refusal by the ACL, which an operator may change.
_REFUSED_SECONDS = 60.0


def channel_of(model: str) -> str:
    """Returns the name of a model's channel, in the slot of the control records."""
    return f"{KEY}:{model}"


class Announcer:
    """Sends announcements.

    Args:
        client: client of the servers.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._refused = False  # as logged

    def announce(self, model: str) -> None:
        """Wakes up the followers of a model, by one try; a failure is no error."""
        address = self._client.topology.holder_of(SLOT)
        if address is None:
            return
        try:
            with self._client.connections.to(address) as connection:
                ask(connection, "SPUBLISH", channel_of(model), "")
        except (redis.RedisError, OSError) as err:
            refused = refusal(self._client.url, err)
            if isinstance(refused, PermissionDeniedError) and not self._refused:
                self._refused = True
                _LOG.warning(f"cuts are not announced, servers find them by polling: {refused}")


class Announcements:
    """A thread that receives the announcements of a model, over a connection of its own.

    It follows failovers and slots that move. While it cannot subscribe, it tries again.

    Args:
        client: client of the servers; it is closed later than this object.
        model: name of the model.
        wake: called after each message, and after each new subscription, which may have missed
            some. It returns at once.
    """

    def __init__(self, client: RedisClient, model: str, wake: Callable[[], None]) -> None:
        self._client = client
        self._channel = channel_of(model)
        self._wake = wake
        self._refused = False  # as logged
        self._subscribed = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="announcements", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        pause = _RETRY_SECONDS
        while not self._closed.is_set():
            self._subscribed = False
            address = self._client.topology.holder_of(SLOT)
            try:
                if address is None:
                    raise redis.exceptions.ClusterDownError("CLUSTERDOWN no node holds it")
                with self._client.connections.to(address) as connection:
                    self._receive(connection)
            except (redis.RedisError, OSError) as err:
                if self._subscribed:
                    pause = _RETRY_SECONDS
                pause = self._recover(err, address, pause)

    def _receive(self, connection: Any) -> None:
        """Receives messages until the connection or the subscription ends."""
        repeat = asked = 0.0
        try:
            while not self._closed.is_set():
                now = time.monotonic()
                if asked and now > asked + _REPEAT_SECONDS:
                    raise redis.TimeoutError("the subscription is not confirmed")
                if not asked and now >= repeat:
                    # Also on a live subscription: it is confirmed again, or moves to another node.
                    connection.send_command("SSUBSCRIBE", self._channel)
                    asked = now
                if not connection.can_read(timeout=_CLOSE_SECONDS):
                    continue
                kind = connection.read_response()[0]
                if kind == b"sunsubscribe":
                    raise redis.exceptions.ClusterDownError("CLUSTERDOWN the slot has moved")
                if kind == b"ssubscribe":
                    asked, repeat = 0.0, time.monotonic() + _REPEAT_SECONDS
                if kind == b"smessage" or not self._subscribed:
                    self._wake()
                self._subscribed = True
        finally:
            connection.disconnect()  # nothing else may be sent over it

    def _recover(self, err: Exception, address: Any, pause: float) -> float:
        """Looks for the node of the channel and waits; returns the next pause."""
        try:
            self._client.overcome(err, address)
        except HotrowError as refused:
            if isinstance(refused, PermissionDeniedError):
                if not self._refused:
                    self._refused = True
                    _LOG.warning(f"cuts are found by polling alone: {refused}")
                pause = _REFUSED_SECONDS
        self._closed.wait(pause)
        return min(2 * pause, _LONGEST_RETRY_SECONDS)
