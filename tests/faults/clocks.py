"""Wall clocks that jump: each process, with its children, may have one of its own."""

from __future__ import annotations

import os
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

_SOURCE = Path(__file__).with_name("moved_clock.c")
_HOUR = 3600
_LIBRARY, _FILE = "LD_PRELOAD", "HOTROW_CLOCK"


def build(folder: Path) -> Path:
    """Compiles the library that moves clocks, and returns it."""
    library = folder / "moved_clock.so"
    command = ["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"]
    subprocess.run(command, check=True)
    return library


class Clock:
    """The wall clock of the processes that are started with its `variables`.

    Args:
        file: new; holds how far it is ahead.
        library: of `build`.

    Attributes:
        variables: of the environment.
        ahead: seconds before the machine's.
    """

    def __init__(self, file: Path, library: Path) -> None:
        self.variables = {_LIBRARY: str(library), _FILE: str(file)}
        self.library = library
        self.ahead = 0
        self._file = file
        if not file.exists():
            file.write_bytes(struct.pack("q", 0))

    @classmethod
    def of_this_process(cls) -> Clock:
        """Returns the clock that this process was started with."""
        return cls(Path(os.environ[_FILE]), Path(os.environ[_LIBRARY]))

    def jump(self, seconds: int) -> None:
        """Sets how far it is ahead of the machine's; below zero: behind."""
        self.ahead = seconds
        # In place: the processes have it mapped.
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", seconds))


class ClockFaults:
    """Wall clocks jump by an hour.

    Those of servers and of the exporter jump ahead or back, and later to the machine's. That of a
    node of the store jumps ahead and stays, or back for a while: a node of a Redis Cluster that
    finds the cluster down and whose clock then goes back stays down until it has caught up.

    Args:
        nodes: clocks of the nodes of the store.
        servers: clocks of the servers.
        exporter: clock of this process.
    """

    def __init__(self, nodes: Sequence[Clock], servers: Sequence[Clock], exporter: Clock) -> None:
        self._nodes, self._servers, self._exporters = nodes, servers, [exporter]

    def move_node_clock(self, target: int, lasts: float) -> None:
        """Of one node."""
        clock = self._nodes[target % len(self._nodes)]
        if _is_ahead(target):
            clock.jump(clock.ahead + _HOUR)
        else:
            self._jump([clock], target, lasts)

    def move_server_clock(self, target: int, lasts: float) -> None:
        """Of all processes of a server."""
        self._jump(self._servers, target, lasts)

    def move_exporter_clock(self, target: int, lasts: float) -> None:
        """Of the exporter, and of the clients."""
        self._jump(self._exporters, target, lasts)

    def lift(self) -> None:
        """Sets those of servers and of the exporter to the machine's."""
        for clock in (*self._servers, *self._exporters):
            clock.jump(0)

    @staticmethod
    def _jump(clocks: Sequence[Clock], target: int, lasts: float) -> None:
        clock = clocks[target % len(clocks)]
        before = clock.ahead
        clock.jump(before + (_HOUR if _is_ahead(target) else -_HOUR))
        time.sleep(lasts)
        clock.jump(before)


def _is_ahead(target: int) -> bool:
    return target % 4 < 2
