r"""TLS for the native reader, which has none: bytes between a Unix socket and the nodes.

A connection to the socket begins with the line `host:port\r\n`. When the node is connected and its
certificate is valid, the relay answers `+OK\r\n` and then passes bytes in both directions.
Otherwise it answers with an error in Redis' form and closes the connection. So one socket leads to
every node, also to nodes that only a redirection names.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import tempfile
import threading
from pathlib import Path

from hotrow.errors import InvalidArgumentError
from hotrow.store.access import StoreAccess
from hotrow.store.redis.connections import CONNECT_SECONDS, parse_address
from hotrow.store.redis.tls import tls_context

# Size of the path in sockaddr_un, including the zero.
_LONGEST_PATH = 107
# Limit of a line that names a node: a host has at most 253 characters.
_LONGEST_LINE = 300
# Limit of a client's bytes before its node is connected.
_MOST_WAITING_BYTES = 1 << 20
_BACKLOG = 1024


class TlsRelay:
    """Accepts connections on a Unix socket in a private folder until it is closed.

    Attributes:
        path: path of the socket.
    """

    def __init__(self, access: StoreAccess, folder: Path | None = None) -> None:
        """Starts the relay.

        Args:
            access: certificates.
            folder: where to make the socket's own folder; None: the folder for temporary files.

        Raises:
            InvalidArgumentError: a certificate cannot be used, or the folder's path is too long.
        """
        try:
            context = tls_context(access)
        except (OSError, ssl.SSLError) as err:
            raise InvalidArgumentError(
                f"the certificates of the store cannot be used: {err}; give PEM files"
            ) from err
        # A process that can connect acts with the client's certificate: only this user may enter.
        self._folder = tempfile.mkdtemp(prefix="tls-", dir=folder)
        self.path = f"{self._folder}/s"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if len(self.path.encode()) > _LONGEST_PATH:
                raise InvalidArgumentError(
                    f"the path of a socket has at most {_LONGEST_PATH} bytes, and {self.path} has "
                    "more; set TMPDIR to a folder with a shorter path"
                )
            self._listener.bind(self.path)
            self._listener.listen(_BACKLOG)
        except BaseException:
            self._listener.close()
            shutil.rmtree(self._folder)
            raise
        self._context = context
        self._ends: set[_End] = set()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="tls-relay", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Closes all connections and removes the socket; idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        # Any error ends a connection, and its client gets that.
        self._loop.set_exception_handler(lambda loop, context: None)
        with self._runner:
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        server = await self._loop.create_unix_server(
            lambda: _Client(self._ends, self._context), sock=self._listener, backlog=_BACKLOG
        )
        await self._closing.wait()
        # asyncio loses a connection that it accepts just before its server is closed.
        self._loop.remove_reader(self._listener)
        while self._ends or len(asyncio.all_tasks()) > 1:
            for end in list(self._ends):
                end.transport.abort()
            await asyncio.sleep(0.001)
        server.close()


class _End(asyncio.Protocol):
    """One side of a connection that is relayed to the other side.

    Args:
        ends: the open sides of all connections; a side adds itself while it is open.
    """

    transport: asyncio.Transport
    other: _End | None = None

    def __init__(self, ends: set[_End]) -> None:
        self._ends = ends

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._ends.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._ends.discard(self)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self.other.transport.write(data)

    # Stop reading from the other side while this side's buffer is full.
    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()


class _Node(_End):
    """The side of a node; when it closes, the client's side sends the rest and closes."""

    def __init__(self, ends: set[_End], client: _Client) -> None:
        super().__init__(ends)
        self.other = client

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        assert self.other is not None
        self.other.transport.close()


class _Client(_End):
    """The side of a client; when it closes, the node's side closes, as Redis does."""

    def __init__(self, ends: set[_End], context: ssl.SSLContext) -> None:
        super().__init__(ends)
        self._context = context
        self._waiting = b""  # until the node is connected
        self._reaching: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)
            return
        self._waiting += data
        if self._reaching is not None:
            if len(self._waiting) > _MOST_WAITING_BYTES:
                self.transport.pause_reading()
            return
        line, end, rest = self._waiting.partition(b"\r\n")
        if end:
            self._waiting = rest
            self._reaching = asyncio.get_running_loop().create_task(self._reach(line))
        elif len(line) > _LONGEST_LINE:
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self._reaching is not None:
            self._reaching.cancel()
        if self.other is not None:
            self.other.transport.abort()

    async def _reach(self, line: bytes) -> None:
        node = _Node(self._ends, self)
        try:
            host, port = parse_address(line.decode())
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(
                    lambda: node, host, port, ssl=self._context, server_hostname=host
                )
        except (OSError, ValueError) as err:
            self.transport.write(f"-TLS {_reason(err)}\r\n".encode())
            self.transport.close()
            return
        finally:
            if self.transport.is_closing() and node in self._ends:
                node.transport.abort()  # the node connected too late
        # Keepalive detects a node that vanishes while no data is sent.
        peer = node.transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.other = node
        self.transport.write(b"+OK\r\n")
        self.transport.resume_reading()
        node.transport.write(self._waiting)
        self._waiting = b""


def _reason(err: Exception) -> str:
    if isinstance(err, TimeoutError) and not err.errno:
        return f"no answer in {CONNECT_SECONDS:g} s"
    if isinstance(err, OSError) and not isinstance(err, ssl.SSLError) and err.errno:
        return os.strerror(err.errno) if err.errno > 0 else str(err.strerror)  # DNS: below 0
    return " ".join(str(err).split())
