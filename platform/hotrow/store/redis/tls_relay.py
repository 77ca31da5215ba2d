r"""TLS for the native reader, which has none: bytes between a Unix socket and the nodes.

A connection to the socket begins with the line `host:port\r\n`. When the node is reached and its
certificate is right, the answer is `+OK\r\n`, and from then on bytes are passed on; else it is an
error of Redis' form, and the connection ends. So one socket leads to every node, also to those
that only a redirection names.
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

# sockaddr_un holds so many bytes, with the zero.
_LONGEST_PATH = 107
# Of a line that names a node: a host has 253 characters at most.
_LONGEST_LINE = 300
# What a client may send before its node is reached.
_MOST_WAITING_BYTES = 1 << 20
_BACKLOG = 1024


class TlsRelay:
    """Takes connections on a Unix socket of a private folder until it is closed.

    Attributes:
        path: of the socket.
    """

    def __init__(self, access: StoreAccess, folder: Path | None = None) -> None:
        """Begins.

        Args:
            access: certificates.
            folder: that the socket's own folder is made in; None: that of temporary files.

        Raises:
            InvalidArgumentError: a certificate cannot be used; the folder's path is too long.
        """
        try:
            context = tls_context(access)
        except (OSError, ssl.SSLError) as err:
            raise InvalidArgumentError(
                f"the certificates of the store cannot be used: {err}; give PEM files"
            ) from err
        # Whoever may connect has the client's certificate: nobody else may look in.
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
        """Ends all connections and removes the socket; idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        # Whatever goes wrong ends a connection, and its client notices that.
        self._loop.set_exception_handler(lambda loop, context: None)
        with self._runner:
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        server = await self._loop.create_unix_server(
            lambda: _Client(self._ends, self._context), sock=self._listener, backlog=_BACKLOG
        )
        await self._closing.wait()
        # asyncio loses a connection that was accepted just before its server is closed.
        self._loop.remove_reader(self._listener)
        while self._ends or len(asyncio.all_tasks()) > 1:
            for end in list(self._ends):
                end.transport.abort()
            await asyncio.sleep(0.001)
        server.close()


class _End(asyncio.Protocol):
    """One side of a connection that is passed on to the other side.

    Args:
        ends: of all connections; this one is there while it is open.
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

    # The other side waits while this one takes no more.
    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()


class _Node(_End):
    """The side of a node; the client's is closed with it, when it has got what was sent."""

    def __init__(self, ends: set[_End], client: _Client) -> None:
        super().__init__(ends)
        self.other = client

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        assert self.other is not None
        self.other.transport.close()


class _Client(_End):
    """The side of a client; the node's ends with it, as Redis does when a client is gone."""

    def __init__(self, ends: set[_End], context: ssl.SSLContext) -> None:
        super().__init__(ends)
        self._context = context
        self._waiting = b""  # until the node is reached
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
                node.transport.abort()  # too late
        # A node that vanished while nobody reads is noticed.
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
        return os.strerror(err.errno) if err.errno > 0 else str(err.strerror)  # of a name: below 0
    return " ".join(str(err).split())
