"""TCP ports for the servers that tests start."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

# Below the ports that the kernel gives to connections, so that one is still free when its server
# binds it, and after a restart.
_PORTS = range(10240, 32768)
_BLOCK = 64
_LOCKS = Path(tempfile.gettempdir()) / f"hotrow-test-ports-{os.getuid()}"

_left: list[int] = []


def free_port() -> int:
    """Returns a port on which no process listens, on any interface; never the same one twice.

    A process takes ports in blocks, and holds a lock on the file of each block until it ends: test
    processes that run at the same time never get the same port.

    Raises:
        RuntimeError: other processes hold all blocks.
    """
    while True:
        if not _left:
            _left.extend(_take_block())
        port = _left.pop()
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        return port


def _take_block() -> list[int]:
    _LOCKS.mkdir(exist_ok=True)
    starts = list(_PORTS[::_BLOCK])
    # Independent of the seeds of tests.
    random.SystemRandom().shuffle(starts)
    for start in starts:
        # A descriptor that stays open: the kernel ends its lock with the process.
        lock = os.open(_LOCKS / str(start), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return [port for port in range(start, start + _BLOCK) if port in _PORTS]
    raise RuntimeError(f"other processes hold all ports that tests use ({_LOCKS})")
