"""Fixtures of Redis servers, for all tests; see the classes for what they can."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # not installed on every GPU machine, which runs tests/gpu
    from redis_servers.cluster import RedisCluster
    from redis_servers.sentinel import RedisSentinel
    from redis_servers.standalone import RedisServer


class Servers:
    """Starts servers, each in a new folder, and ends them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Any] = []

    def standalone(self, **options: Any) -> RedisServer:
        """Starts a `RedisServer` with its options."""
        from redis_servers.standalone import RedisServer

        return self._start(RedisServer, options)

    def cluster(self, **options: Any) -> RedisCluster:
        """Starts a `RedisCluster` with its options."""
        from redis_servers.cluster import RedisCluster

        return self._start(RedisCluster, options)

    def sentinel(self, **options: Any) -> RedisSentinel:
        """Starts a `RedisSentinel` with its options."""
        from redis_servers.sentinel import RedisSentinel

        return self._start(RedisSentinel, options)

    def close(self) -> None:
        """Ends all servers."""
        for server in self._started:
            server.kill()

    def _start(self, kind: Callable[..., Any], options: dict[str, Any]) -> Any:
        server = kind(self._folder / str(len(self._started)), **options)
        self._started.append(server)
        return server


def _servers() -> Iterator[Servers]:
    # The path of a Unix socket has at most 107 bytes; those of `tmp_path` are longer at times.
    folder = Path(tempfile.mkdtemp(prefix="redis-"))
    servers = Servers(folder)
    try:
        yield servers
    finally:
        servers.close()
        shutil.rmtree(folder)


@pytest.fixture
def redis_servers() -> Iterator[Servers]:
    """Starts Redis servers that end with the test."""
    yield from _servers()


@pytest.fixture(scope="module")
def module_redis_servers() -> Iterator[Servers]:
    """Starts Redis servers that end with the module."""
    yield from _servers()


@pytest.fixture(scope="session")
def _session_servers() -> Iterator[dict[str, Any]]:
    with_servers = _servers()
    servers = next(with_servers)
    yield {
        "standalone": functools.cache(servers.standalone),
        "cluster": functools.cache(servers.cluster),
    }
    with_servers.close()


@pytest.fixture
def redis_server(_session_servers: dict[str, Any]) -> RedisServer:
    """A server that tests share, emptied for each; do not kill it."""
    server: RedisServer = _session_servers["standalone"]()
    server.call("FLUSHALL")
    server.call("FUNCTION", "FLUSH")
    return server


@pytest.fixture
def redis_cluster(_session_servers: dict[str, Any]) -> RedisCluster:
    """A cluster that tests share, emptied for each; do not kill its servers nor move slots."""
    cluster: RedisCluster = _session_servers["cluster"]()
    cluster.flush()
    return cluster
