"""The ASGI application of the REST port: HTTP itself, not the meaning of a request."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from hotrow.serving.rest.body_limit import BodyTooLongError, read_body
from hotrow.serving.rest.body_memory import BodiesTooLongError, BodyMemory, HeldBody
from hotrow.serving.rest.content_coding import decoded, encoded
from hotrow.serving.rest.handler import RestHandler, error_text
from hotrow.serving.rest.health import LIVE, READY, Health
from hotrow.serving.wire.status import RequestError

_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}
_NOT_FOUND_PAGE = "<html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body>"
_METRICS_ELSEWHERE = "Metrics are on the port of --admin_port only; this server has one\n"
_CLOSE = {"Connection": "close"}


@dataclass(frozen=True)
class RestLimits:
    """Limits of one request.

    Attributes:
        max_threads: requests answered at a time; None means 4 for each CPU.
        max_body_bytes: longest body, uncompressed.
        max_total_body_bytes: of all bodies under way together, as sent and uncompressed.
        read_seconds: time for a body to arrive, plus a second for each 1000 bytes.
        wait_seconds: longest wait for one of the threads.
    """

    max_threads: int | None
    max_body_bytes: int
    max_total_body_bytes: int
    read_seconds: float
    wait_seconds: float


class RestApp:
    """Reads a request whole and hands it to the handler in a thread.

    Args:
        handler: handles paths below /v1/.
        health: handles health checks, also when all threads are busy.
        limits: of requests.
        cors: whether every reply carries the headers that let browsers read it.
        metrics: path of the metrics page and the function that returns it; None: no page. Without
            a function, the path says that the admin port has the page.

    Attributes:
        limits: of requests.
    """

    def __init__(
        self,
        handler: RestHandler,
        health: Health,
        limits: RestLimits,
        cors: bool,
        metrics: tuple[str, Callable[[], str] | None] | None,
    ) -> None:
        self._handler = handler
        self._health = {LIVE: health.live, READY: health.ready}
        self.limits = limits
        self._cors = cors
        self._metrics = metrics
        self._bodies = BodyMemory(limits.max_total_body_bytes)
        self._limiter: anyio.CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._respond(request, _sent_path(scope))
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _respond(self, request: Request, path: str) -> Response:
        if self._metrics is not None and path == self._metrics[0]:
            if self._metrics[1] is None:
                return PlainTextResponse(_METRICS_ELSEWHERE, status_code=403)
            page = await anyio.to_thread.run_sync(self._metrics[1])
            return Response(page, headers={"Content-Type": "text/plain"})
        if not path.lower().startswith("/v1/"):
            return HTMLResponse(_NOT_FOUND_PAGE, status_code=404)
        if request.method == "OPTIONS":
            origin = request.headers.get("origin", "")
            return self._reply(200 if re.match(r"https?://", origin) else 400, b"")
        if request.method == "GET" and path.lower() in self._health:
            return self._reply(*self._health[path.lower()]())
        with self._bodies.body() as held:
            limits = self.limits
            try:
                body = await read_body(request, held, limits.max_body_bytes, limits.read_seconds)
            except BodyTooLongError as err:
                return self._refusal(413, str(err))
            except BodiesTooLongError as err:
                return self._refusal(503, str(err))
            except TimeoutError:
                return self._refusal(408, "The request body did not come in time")
            return await self._answer_in_thread(request, path, body, held)

    async def _answer_in_thread(
        self, request: Request, path: str, body: bytes, held: HeldBody
    ) -> Response:
        if self._limiter is None:  # it belongs to the event loop
            self._limiter = anyio.CapacityLimiter(
                self.limits.max_threads or 4 * (os.cpu_count() or 1)
            )
            self._free = anyio.CapacityLimiter(math.inf)
        try:
            with anyio.fail_after(self.limits.wait_seconds):
                await self._limiter.acquire_on_behalf_of(held)
        except TimeoutError:
            return self._reply(
                503,
                error_text(
                    "No thread was free for the request in time; try again later, or start the "
                    "server with more --rest_api_num_threads"
                ).encode(),
            )
        try:
            return await anyio.to_thread.run_sync(
                self._answer, request, path, body, held, limiter=self._free
            )
        finally:
            self._limiter.release_on_behalf_of(held)

    def _answer(self, request: Request, path: str, body: bytes, held: HeldBody) -> Response:
        headers = request.headers
        try:
            sent = body
            body = decoded(sent, headers.get("content-encoding", ""), self.limits.max_body_bytes)
            if body is not sent:
                held.grow(len(body))
        except BodyTooLongError as err:
            return self._refusal(413, str(err))
        except BodiesTooLongError as err:
            return self._refusal(503, str(err))
        except RequestError as err:
            return self._reply(400, error_text(str(err)).encode())
        reply = self._handler.answer(request.method, path, body)
        content, coding = encoded(reply.body, headers.get("accept-encoding", ""))
        replied = dict(reply.headers)
        if coding:
            replied |= {"Content-Encoding": coding, "Vary": "Accept-Encoding"}
        return self._reply(reply.status, content, replied)

    def _refusal(self, status: int, message: str) -> Response:
        # The rest of the body is not read.
        return self._reply(status, error_text(message).encode(), _CLOSE)

    def _reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
        return Response(
            body,
            status_code=status,
            media_type="application/json",
            headers={**(_CORS if self._cors else {}), **(headers or {})},
        )


def _sent_path(scope: Scope) -> str:
    """Returns the path as the client sent it, with its query string."""
    path: str = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
    query: str = scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path
