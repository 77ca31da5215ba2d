"""uvicorn's HTTP/1.1, which also closes connections whose headers do not arrive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableMapping
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def protocol_with_header_timeout(seconds: float) -> type[H11Protocol]:
    """Returns a protocol that closes a connection when a request's headers take longer.

    uvicorn itself limits only the time between two requests.
    """

    class PunctualProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.logger = cast(logging.Logger, _ClientLogger(self.logger, self.client))
            self._watch_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_watching()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch_headers()

        def _watch_headers(self) -> None:
            if self.conn.their_state is not h11.IDLE:
                self._stop_watching()
            elif self._timer is None:
                self._timer = self.loop.call_later(seconds, self._give_up)

        def _stop_watching(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self._timer = None
            # The request may have ended meanwhile; uvicorn limits the time between two.
            if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
                self.transport.write(_TOO_SLOW)
                self.transport.close()

    return PunctualProtocol


class _ClientLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the client's address to each line."""

    def __init__(self, logger: logging.Logger, client: tuple[str, int] | None) -> None:
        super().__init__(logger)
        host, port = client or ("unknown", 0)
        host = host.removeprefix("::ffff:")  # IPv4 on a dual-stack socket
        self._client = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.level = logger.level

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        return f"client {self._client}: {msg}", kwargs
