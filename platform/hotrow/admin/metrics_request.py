"""The one HTTP request of the admin port: GET of the page of metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from urllib.parse import urlsplit


@dataclass(frozen=True)
class MetricsPage:
    """The page, and who may read it.

    Attributes:
        path: of the page; None: there is none.
        text: returns the page.
        accepts: whether a request with this header `authorization` may be answered.
        service: the gRPC service that the port has besides, for messages.
    """

    path: str | None
    text: Callable[[], str]
    accepts: Callable[[str | None], bool]
    service: str

    def reply(self, head: bytes) -> bytes:
        """Returns the reply to a request, after which the connection ends.

        Args:
            head: request line and headers.
        """
        return _Exchange(head, self).written()


class _Exchange(BaseHTTPRequestHandler):
    """One request and its reply in memory."""

    protocol_version = "HTTP/1.1"

    def __init__(self, head: bytes, page: MetricsPage) -> None:
        self.rfile = BytesIO(head)
        self.wfile = self._written = BytesIO()
        self._page = page
        self.handle_one_request()

    def written(self) -> bytes:
        """Returns the reply."""
        return self._written.getvalue()

    def do_GET(self) -> None:
        """Answers with the page."""
        if not self._page.accepts(self.headers.get("authorization")):
            self._send(401, "The admin port needs a token: Authorization: Bearer TOKEN\n")
        elif urlsplit(self.path).path != self._page.path:
            self._send(
                404,
                f"The admin port has the page of metrics and gRPC's {self._page.service}\n",
            )
        else:
            self._send(200, self._page.text())

    def _send(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Returns the header `Server`."""
        return "hotrow"

    def log_message(self, *args: object) -> None:
        """Logs no request."""
