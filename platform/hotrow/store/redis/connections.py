"""Connections to the servers of a store, pooled by address."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from hotrow.store.access import StoreAccess
from hotrow.store.url import StoreUrl

CONNECT_SECONDS = 3.0
# Longer than pauses of Redis, and short beside a failover: a connection may die without a word.
ANSWER_SECONDS = 5.0

Address = tuple[str, int]
"""Host and port; port 0: the path of a Unix socket."""


def address_text(address: Address) -> str:
    """Returns `host:port`, `[ipv6]:port` or `unix:/path`."""
    host, port = address
    if port == 0:
        return f"unix:{host}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> Address:
    """Returns the address of a text `host:port` or `[ipv6]:port` from `address_text`.

    Raises:
        ValueError: the text is no address.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise ValueError(f"{text!r} is no host:port")
    return host, int(port)


class Connections:
    """Pools of redis-py connections, which never retry by themselves. Thread-safe."""

    def __init__(self, url: StoreUrl, access: StoreAccess) -> None:
        self._url = url
        self._access = access
        self._pools: dict[Address, redis.ConnectionPool] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def to(self, address: Address) -> Iterator[Any]:
        """Lends a connection; a connection that raised a `ConnectionError` is opened again."""
        with self._lock:
            pool = self._pools.get(address)
            if pool is None:
                pool = self._pools[address] = self._pool(address, with_password=True)
        with lent(pool) as connection:
            yield connection

    @contextlib.contextmanager
    def to_sentinel(self, address: Address, *, with_password: bool) -> Iterator[Any]:
        """Lends a new connection to a sentinel, which may have no password."""
        pool = self._pool(address, with_password=with_password, database=0)
        try:
            with lent(pool) as connection:
                yield connection
        finally:
            pool.disconnect()

    def close(self) -> None:
        """Closes all of them."""
        with self._lock:
            for pool in self._pools.values():
                pool.disconnect()
            self._pools.clear()

    def _pool(
        self, address: Address, *, with_password: bool, database: int | None = None
    ) -> redis.ConnectionPool:
        host, port = address
        options: dict[str, Any] = {
            "db": self._url.database if database is None else database,
            "socket_timeout": ANSWER_SECONDS,
            "socket_connect_timeout": CONNECT_SECONDS,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        user = self._access.username or self._url.username
        # A user may have no password.
        if with_password and (user or self._access.password):
            options["password"] = self._access.password
            options["username"] = user or None
        if port == 0:
            del options["socket_connect_timeout"]
            return redis.ConnectionPool(redis.UnixDomainSocketConnection, path=host, **options)
        options |= {"host": host, "port": port, "socket_keepalive": True}
        if not self._url.tls:
            return redis.ConnectionPool(redis.Connection, **options)
        options |= {"ssl_ca_certs": self._access.ca_file or None}
        options |= {"ssl_certfile": self._access.cert_file or None}
        options |= {"ssl_keyfile": self._access.key_file or None}
        return redis.ConnectionPool(redis.SSLConnection, **options)


@contextlib.contextmanager
def lent(pool: redis.ConnectionPool) -> Iterator[Any]:
    """Lends a connection of a pool; closes it on an error, because answers may be unread."""
    connection: Any = pool.get_connection()
    try:
        yield connection
    except BaseException:
        connection.disconnect()
        raise
    finally:
        pool.release(connection)
