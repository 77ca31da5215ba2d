"""The admin port: one TCP port for a gRPC service and for a page of metrics.

A connection that begins as HTTP/2 is passed on, byte for byte, to a gRPC server in this process;
any other is one HTTP/1 request. TLS ends here for both. Python's gRPC server shares no port.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Awaitable, Sequence

from hotrow.admin.metrics_request import MetricsPage

_BACKLOG = 64
# More connections at a time are closed at once.
_MOST_CONNECTIONS = 64
# For the TLS handshake, the first bytes, and the head of an HTTP request.
_BEGIN_SECONDS = 10.0
# To send what is left when the answer is written.
_END_SECONDS = 10.0
# Of HTTP/2's connection preface.
_HTTP_2 = b"PRI "
_END_OF_HEAD = b"\r\n\r\n"
_MOST_HEAD_BYTES = 1 << 14
_PIECE_BYTES = 1 << 16


class AdminPort:
    """Answers from its construction until `stop`.

    Args:
        taken: bound sockets; closed with it.
        tls: None for plain connections.
        grpc_socket: path of the Unix socket of the gRPC server.
        page: of metrics.
    """

    def __init__(
        self,
        taken: Sequence[socket.socket],
        tls: ssl.SSLContext | None,
        grpc_socket: str,
        page: MetricsPage,
    ) -> None:
        self._grpc_socket = grpc_socket
        self._page = page
        self._connections: set[asyncio.Task[None]] = set()
        if tls is not None:
            # A client that speaks both, as Prometheus and curl do, gets the page; gRPC's clients
            # offer nothing but h2.
            tls.set_alpn_protocols(["http/1.1", "h2"])
        self._loop = asyncio.new_event_loop()
        self._servers = [self._loop.run_until_complete(self._listen(s, tls)) for s in taken]
        self._thread = threading.Thread(target=self._loop.run_forever, name="admin", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Closes the port and its connections."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(
        self, taken: socket.socket, tls: ssl.SSLContext | None
    ) -> asyncio.AbstractServer:
        return await asyncio.start_server(
            self._answer,
            sock=taken,
            backlog=_BACKLOG,
            limit=_MOST_HEAD_BYTES,
            ssl=tls,
            ssl_handshake_timeout=_BEGIN_SECONDS if tls is not None else None,
        )

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one connection until it ends."""
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._connections) < _MOST_CONNECTIONS:
                self._connections.add(task)
                await self._answer_protocol(reader, writer)
                async with asyncio.timeout(_END_SECONDS):
                    writer.close()
                    await writer.wait_closed()
        # The client went, is slow, or sent something else; or the port closes, which asyncio would
        # print as an error of the task.
        except (
            OSError,
            EOFError,
            TimeoutError,
            asyncio.LimitOverrunError,
            asyncio.CancelledError,
        ):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _answer_protocol(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(_BEGIN_SECONDS):
            begin = await reader.readexactly(len(_HTTP_2))
            head = b"" if begin == _HTTP_2 else begin + await reader.readuntil(_END_OF_HEAD)
        if head:
            writer.write(await asyncio.to_thread(self._page.reply, head))
            return
        grpc_reader, grpc_writer = await asyncio.open_unix_connection(self._grpc_socket)
        try:
            grpc_writer.write(begin)
            await _first_of(_pass_on(reader, grpc_writer), _pass_on(grpc_reader, writer))
        finally:
            grpc_writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Writes what is read until the reader's end."""
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()


async def _first_of(*work: Awaitable[None]) -> None:
    """Runs all until one has ended, and ends the others."""
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await task
