"""TCP ports for the servers that tests start."""

from __future__ import annotations

import random
import socket

# Below the ports that the kernel gives to connections, so that one is still free when its server
# binds it, and after a restart.
_PORTS = range(10240, 32768)
_given: set[int] = set()


def free_port() -> int:
    """Returns a port on which no process listens, on any interface; never the same one twice.

    Test processes that run at the same time choose at random from so many ports that they hardly
    ever collide.
    """
    while True:
        # Independent of the seeds of tests.
        port = random.SystemRandom().choice(_PORTS)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        _given.add(port)
        return port
