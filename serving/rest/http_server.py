"""The HTTP server of the REST port: uvicorn in a thread of its own, on a socket already bound."""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn

from hotrow.errors import UnavailableError
from hotrow.serving.config.tls import Tls
from hotrow.serving.rest.app import RestApp
from hotrow.serving.rest.http_protocol import protocol_with_header_timeout

_BACKLOG = 1024
# Idle time of a connection between two requests; clients keep some open for reuse.
_IDLE_SECONDS = 75


class RestServer:
    """Listens on a port from `start` to `stop`."""

    def __init__(self, taken: socket.socket) -> None:
        """Prepares it.

        Args:
            taken: the port, bound; it is closed with the server.
        """
        self._socket = taken
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self, app: RestApp, header_seconds: float, tls: Tls | None) -> None:
        """Listens, and returns when requests are answered.

        Args:
            app: answers them.
            header_seconds: time for the headers of a request to arrive.
            tls: None for plain HTTP.

        Raises:
            UnavailableError: another process listens on the port by now, or the server does not
                start.
        """
        try:
            self._socket.listen(_BACKLOG)
        except OSError as err:
            raise UnavailableError(
                f"the REST port cannot be listened on: {err.strerror}; choose another port"
            ) from err
        with tempfile.TemporaryDirectory(prefix="hotrow-") as folder:
            config = uvicorn.Config(
                app,
                http=protocol_with_header_timeout(header_seconds),
                log_level="warning",
                log_config=None,  # lines have the form of all others
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_keep_alive=_IDLE_SECONDS,
                **_tls_files(tls, Path(folder)),
            )
            server = uvicorn.Server(config)
            thread = threading.Thread(
                target=server.run, kwargs={"sockets": [self._socket]}, name="rest", daemon=True
            )
            thread.start()
            while not server.started and thread.is_alive():
                time.sleep(0.005)
        if not server.started:
            raise UnavailableError("the REST server does not start; its log says why")
        self._server, self._thread = server, thread

    def stop(self, drain_seconds: float) -> None:
        """Refuses new requests; returns when the running ones have ended or the time is up."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(drain_seconds)
        self._socket.close()


def _tls_files(tls: Tls | None, folder: Path) -> dict[str, Any]:
    """Returns uvicorn's settings; it reads files, and only while it starts."""
    if tls is None:
        return {}
    texts = {"ssl_keyfile": tls.server_key, "ssl_certfile": tls.server_cert}
    if tls.client_verify:
        texts["ssl_ca_certs"] = tls.custom_ca
    settings: dict[str, Any] = {}
    for name, text in texts.items():
        (folder / name).write_text(text)
        settings[name] = str(folder / name)
    if tls.client_verify:
        settings["ssl_cert_reqs"] = ssl.CERT_REQUIRED
    return settings
