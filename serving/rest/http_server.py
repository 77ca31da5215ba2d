"""The HTTP server of the REST wire: uvicorn in a thread of its own, on a socket bound before."""

from __future__ import annotations

import gzip
import os
import re
import socket
import threading
import time
import zlib

import anyio
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from hotrow.errors import UnavailableError
from hotrow.serving.rest.handler import RestHandler

_HOST = "0.0.0.0"
_BACKLOG = 1024
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}
_NOT_FOUND_PAGE = "<html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body>"


class RestServer:
    """Listens on a port from `start` to `stop`."""

    def __init__(self, port: int, max_threads: int | None, cors: bool) -> None:
        """Takes the port without listening on it yet.

        Args:
            port: TCP port, on every interface.
            max_threads: requests answered at a time; None means 4 for each CPU.
            cors: whether every reply carries the headers that let browsers read it.

        Raises:
            UnavailableError: the port is taken or not allowed.
        """
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((_HOST, port))
        except OSError as err:
            self._socket.close()
            raise UnavailableError(
                f"--rest_api_port {port} cannot be used: {err.strerror}; choose another port"
            ) from err
        self._max_threads = max_threads or 4 * (os.cpu_count() or 1)
        self._cors = cors
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self, handler: RestHandler) -> None:
        """Listens, and returns when requests are answered.

        Raises:
            UnavailableError: another process listens on the port since it was taken.
        """
        try:
            self._socket.listen(_BACKLOG)
        except OSError as err:
            raise UnavailableError(
                f"the REST port cannot be listened on: {err.strerror}; choose another port"
            ) from err
        config = uvicorn.Config(
            _RestApp(handler, self._max_threads, self._cors),
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [self._socket]}, name="rest", daemon=True
        )
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        self._server, self._thread = server, thread

    def stop(self, drain_seconds: float) -> None:
        """Takes no new request, and returns when the running ones ended or the time is up."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(drain_seconds)
        self._socket.close()


class _RestApp:
    """ASGI application: reads a request whole and hands it to the handler in a thread."""

    def __init__(self, handler: RestHandler, max_threads: int, cors: bool) -> None:
        self._handler = handler
        self._max_threads = max_threads
        self._cors = cors
        self._limiter: anyio.CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._respond(request, _sent_path(scope))
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _respond(self, request: Request, path: str) -> Response:
        if not path.lower().startswith("/v1/"):
            return HTMLResponse(_NOT_FOUND_PAGE, status_code=404)
        if request.method == "OPTIONS":
            origin = request.headers.get("origin", "")
            return self._reply(200 if re.match(r"https?://", origin) else 400, b"")
        body = await request.body()
        if request.headers.get("content-encoding", "").lower() == "gzip":
            try:
                body = gzip.decompress(body)
            except (OSError, EOFError, zlib.error):
                return self._reply(400, b'{ "error": "Failed to uncompress the gzipped body" }')
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._max_threads)
        reply = await anyio.to_thread.run_sync(
            self._handler.answer, request.method, path, body, limiter=self._limiter
        )
        return self._reply(reply.status, reply.body)

    def _reply(self, status: int, body: bytes) -> Response:
        return Response(
            body,
            status_code=status,
            media_type="application/json",
            headers=_CORS if self._cors else None,
        )


def _sent_path(scope: Scope) -> str:
    """Returns the path as the client sent it, with its query string."""
    path: str = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
    query: str = scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path
