"""The REST port, put together. Its imports take a quarter of a second."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Mapping
from typing import Any

from hotrow.serving.config.options import ServeOptions
from hotrow.serving.config.tls import Tls
from hotrow.serving.data_plane.data_plane import DataPlane
from hotrow.serving.lifecycle.model_service import model_status
from hotrow.serving.lifecycle.route_table import RouteTable
from hotrow.serving.lifecycle.served_models import ServedModels
from hotrow.serving.rest.app import RestApp, RestLimits
from hotrow.serving.rest.gateway import Gateway
from hotrow.serving.rest.handler import RestHandler
from hotrow.serving.rest.health import Health
from hotrow.serving.rest.http_server import RestServer
from hotrow.serving.rest.prometheus import Monitoring


def start_rest(
    taken: socket.socket,
    options: ServeOptions,
    models: ServedModels,
    data_plane: DataPlane,
    routes: RouteTable,
    monitoring: Monitoring,
    troubles: Callable[[], Mapping[str, Any]],
    metrics: tuple[str, Callable[[], str] | None] | None,
    tls: Tls | None,
) -> RestServer:
    """Answers REST requests on a port that is already bound.

    Args:
        taken: the bound port; closed with the server.
        options: of the whole server.
        models: what it serves.
        data_plane: answers predictions.
        routes: where predictions go.
        monitoring: counts requests.
        troubles: returns what the health check says about cuts.
        metrics: path of the page for Prometheus and the function that returns it, as for `RestApp`.
        tls: of the port.

    Raises:
        UnavailableError: another process listens on the port by now, or the server does not
            start.
    """
    handler = RestHandler(
        Gateway(data_plane.channel(), routes),
        functools.partial(model_status, models),
        models.configured,
        options.rest_api_timeout_in_ms / 1000,
        monitoring.count_rest,
    )
    limits = RestLimits(
        options.rest_api_num_threads,
        options.transport.rest_api_max_body_bytes,
        options.transport.rest_api_max_total_body_bytes,
        options.transport.rest_api_read_timeout_in_ms / 1000,
        options.rest_api_timeout_in_ms / 1000,
    )
    app = RestApp(
        handler,
        Health(models.configured, data_plane.trouble, troubles),
        limits,
        options.rest_api_enable_cors_support,
        metrics,
    )
    server = RestServer(taken)
    server.start(app, limits.read_seconds, tls)
    return server
