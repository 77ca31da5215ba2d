"""Faults of the processes of servers, and of their disk."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence

from full_disk import fill_disk_of, free_disk_of
from integration.serving.conftest import Server
from integration.serving.server_processes import control_of, data_plane_of

_LEAST_BYTES = 512  # less than the rows or weights of a cut


class ServerFaults:
    """Does them; the target is the number of a server, modulo how many there are."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers

    def kill_control(self, target: int, lasts: float) -> None:
        """Kills a control process."""
        with _coming_and_going():
            os.kill(control_of(self._server(target)), signal.SIGKILL)

    def kill_executable(self, target: int, lasts: float) -> None:
        """Kills an executable."""
        with _coming_and_going():
            os.kill(data_plane_of(self._server(target)), signal.SIGKILL)

    def stop_control(self, target: int, lasts: float) -> None:
        """Stops a control process."""
        with _coming_and_going():
            self._stop(control_of(self._server(target)), lasts)

    def stop_executable(self, target: int, lasts: float) -> None:
        """Stops an executable."""
        with _coming_and_going():
            self._stop(data_plane_of(self._server(target)), lasts)

    def fill_server_disk(self, target: int, lasts: float) -> None:
        """Lets a control process write no file of a cut."""
        with _coming_and_going():
            process = control_of(self._server(target))
            fill_disk_of(process, _LEAST_BYTES)
        time.sleep(lasts)
        self._give_room(self._server(target))

    def lift(self) -> None:
        """Gives all processes room; none is stopped any more."""
        for server in self._servers:
            self._give_room(server)

    def _give_room(self, server: Server) -> None:
        # The executable, if it was started meanwhile, has the control process's limit.
        for find in (control_of, data_plane_of):
            with _coming_and_going():
                free_disk_of(find(server))

    def _server(self, target: int) -> Server:
        return self._servers[target % len(self._servers)]

    @staticmethod
    def _stop(process: int, lasts: float) -> None:
        os.kill(process, signal.SIGSTOP)
        time.sleep(lasts)
        os.kill(process, signal.SIGCONT)


@contextlib.contextmanager
def _coming_and_going() -> Iterator[None]:
    """A process may be on its way up again."""
    with contextlib.suppress(ValueError, OSError):
        yield
