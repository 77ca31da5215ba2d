"""The admin port, put together: its gRPC server and the port that leads to it.

The public ports cannot serve here: the executable answers them, and knows of no token.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from hotrow.admin.access import AdminAccess
from hotrow.admin.admin_port import AdminPort
from hotrow.admin.metrics_request import MetricsPage
from hotrow.serving.lifecycle.model_service import ModelServer
from hotrow.serving.lifecycle.served_models import ServedModels
from hotrow.serving.monitoring.prometheus import Monitoring

# Clients that leave connections open must not use all of them up.
_OPTIONS = (("grpc.max_connection_idle_ms", 300_000),)

_LOG = logging.getLogger(__name__)


class Admin:
    """The running admin port."""

    def __init__(self, server: ModelServer, port: AdminPort) -> None:
        self._server = server
        self._port = port

    def stop(self) -> None:
        """Aborts running calls and closes the port."""
        self._server.stop()
        self._port.stop()


def start_admin(
    access: AdminAccess,
    taken: Sequence[socket.socket],
    folder: Path,
    models: ServedModels,
    applied: Callable[[], None],
    monitoring: Monitoring,
    metrics_path: str | None,
) -> Admin:
    """Answers on sockets that are already bound.

    Args:
        access: who may use it.
        taken: the bound sockets; closed with the port.
        folder: private, for the socket of the gRPC server.
        models: of the server.
        applied: called before the answer of a reload.
        monitoring: makes the page of metrics.
        metrics_path: path of that page; None: no page.
    """
    path = folder / "admin"
    server = ModelServer(
        models,
        monitoring.families,
        f"unix:{path}",
        lambda method, authorization: access.check(authorization),
        applied,
        options=_OPTIONS,
    )
    context = access.tls.context() if access.tls is not None else None
    page = MetricsPage(metrics_path, monitoring.page, access.accepts, "ModelService")
    port = AdminPort(taken, context, str(path), page)
    if weakness := access.weakness():
        _LOG.warning(weakness)
    return Admin(server, port)
