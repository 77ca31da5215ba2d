"""Faults of the network between servers, exporter and replicas and the nodes of a store."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from children import start_child
from free_ports import free_port

_DELAYS = (0.01, 0.1, 0.4)


class Network:
    """A proxy in front of each node; see `proxy.py`.

    Args:
        nodes: how many there are.

    Attributes:
        ports: of the proxies.
    """

    def __init__(self, nodes: int) -> None:
        self.ports = [free_port() for _ in range(nodes)]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def connect(self, targets: Sequence[int]) -> None:
        """Starts the proxies.

        Args:
            targets: ports of the nodes.
        """
        pairs = [f"{port}:{to}" for port, to in zip(self.ports, targets, strict=True)]
        program = Path(__file__).with_name("proxy.py")
        self._process = start_child(
            [sys.executable, program, *pairs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def close(self) -> None:
        """Ends the proxies."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def delay(self, target: int, lasts: float) -> None:
        """Each way to and from a node takes longer."""
        self._change(target, f"delay {_DELAYS[target % len(_DELAYS)]}")
        time.sleep(lasts)
        self._change(target, "pass")

    def drop(self, target: int, lasts: float) -> None:
        """Nothing that is sent arrives, and no connection ends."""
        self._change(target, "drop")
        time.sleep(lasts)
        self._change(target, "pass")

    def cut(self, target: int, lasts: float) -> None:
        """All connections to a node are reset, and new ones as well."""
        self._change(target, "cut")
        time.sleep(lasts)
        self._change(target, "pass")

    def half_close(self, target: int, lasts: float) -> None:
        """A node's side of each connection is closed, the client's is not."""
        self._change(target, "half-close")

    def lift(self) -> None:
        """Lets everything pass."""
        for number in range(len(self.ports)):
            self._change(number, "pass")

    def _change(self, target: int, mode: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(f"{self.ports[target % len(self.ports)]} {mode}\n")
