"""A Redis of the demo's own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import click

from hotrow.errors import FailedPreconditionError, HotrowError

_READY_SECONDS = 20


@contextlib.contextmanager
def redis_server(folder: Path, port: int) -> Iterator[str]:
    """Runs a Redis without persistence and yields its URL.

    Raises:
        FailedPreconditionError: there is no redis-server on this machine.
        HotrowError: it does not start.
    """
    if shutil.which("redis-server") is None:
        raise FailedPreconditionError(
            "STORE=redis: there is no redis-server here; on Debian: apt-get install redis-server"
        )
    log = folder / "redis.log"
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    command += ["--dir", str(folder), "--logfile", str(log)]
    click.echo(f"$ {' '.join(command[:5])}")
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + _READY_SECONDS
        while not (log.exists() and "eady to accept connections" in log.read_text()):
            if server.poll() is not None or time.monotonic() > end:
                raise HotrowError(f"redis-server did not start; see {log}")
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
