"""A Redis of its own for a benchmark."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

import redis


@contextlib.contextmanager
def redis_server() -> Iterator[redis.Redis]:
    """Yields a client of a new server."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        settings = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = subprocess.Popen(["redis-server", *settings], stdout=subprocess.DEVNULL)
        client = redis.Redis("127.0.0.1", port)
        try:
            for _ in range(500):
                with contextlib.suppress(redis.ConnectionError):
                    client.ping()
                    break
                time.sleep(0.01)
            yield client
        finally:
            client.close()
            process.kill()
            process.wait()


def port_of(client: redis.Redis) -> int:
    """Returns the port of a client's server."""
    return int(client.connection_pool.connection_kwargs["port"])


def cpu_seconds(client: redis.Redis) -> float:
    """Returns the processor time of a server."""
    info = client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])
