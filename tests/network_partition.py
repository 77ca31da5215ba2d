"""A TCP proxy in front of a server that can cut its clients off."""

from __future__ import annotations

import contextlib
import socket
import threading


class Partition:
    """Forwards connections to a port until `cut`; afterwards refuses connections until `heal`.

    Attributes:
        port: where it listens.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._is_cut = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Drops all connections, and new ones as they come."""
        with self._lock:
            self._is_cut = True
            dropped, self._open = self._open, set()
        for one in dropped:
            _close(one)

    def heal(self) -> None:
        """Lets clients through again."""
        self._is_cut = False

    def close(self) -> None:
        """Stops."""
        _close(self._listener)
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    if self._is_cut:
                        _close(client)
                        continue
                    server = socket.create_connection(("127.0.0.1", self._target))
                    self._open |= {client, server}
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with self._lock:
            self._open -= {source, target}
        _close(source)
        _close(target)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
