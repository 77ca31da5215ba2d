"""A serving process: its parts put together, from the first look at the disk to a clean end."""

from __future__ import annotations

import functools
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from hotrow.serving.data_plane import DataPlane, check_port_is_free
from hotrow.serving.gateway import Gateway
from hotrow.serving.lifecycle import LoadPolicy, ModelLifecycle, State
from hotrow.serving.model_service import ModelServer, model_status
from hotrow.serving.options import ServeOptions
from hotrow.serving.rest.handler import RestHandler
from hotrow.serving.rest.http_server import RestServer
from hotrow.serving.route_table import RouteTable
from hotrow.serving.servable import Servable, SessionOptions
from hotrow.serving.status import RequestError
from hotrow.serving.versions import newest_version, resolve_base_path

# How often the wait for the first version looks for a signal.
_WAIT_SECONDS = 0.2


def serve(options: ServeOptions) -> None:
    """Serves a model until SIGTERM or SIGINT; then running requests end, and it returns.

    Both ports are taken at once and listened on when the first version is ready. One line on
    stdout says so; what happens to versions goes to stderr.

    Raises:
        HotrowError: the base path is missing, a port is taken, or the first version fails.
    """
    stop = _stop_on_signals()
    base_path = resolve_base_path(options.model_base_path, options.model_name)
    check_port_is_free(options.port, "--port")
    rest = None
    if options.rest_api_port:
        rest = RestServer(
            options.rest_api_port,
            options.rest_api_num_threads,
            options.rest_api_enable_cors_support,
        )
    data_plane = DataPlane(_log)
    routes = RouteTable(data_plane.set_routes)
    lifecycle = _lifecycle(options, base_path, data_plane, routes)
    models = {options.model_name: lifecycle}
    model_server = None
    lifecycle.start()
    try:
        if not _wait_for_first_version(lifecycle, base_path, options.model_name, stop):
            return
        model_server = ModelServer(models, data_plane.backend)
        data_plane.listen(port=options.port, max_threads=options.grpc_max_threads or 0)
        if rest is not None:
            handler = RestHandler(
                Gateway(data_plane.channel(), routes),
                functools.partial(model_status, models),
                options.rest_api_timeout_in_ms / 1000,
            )
            rest.start(handler)
        _announce(options, lifecycle)
        stop.wait()
    finally:
        if rest is not None:
            rest.stop(options.drain_seconds)
        data_plane.stop(options.drain_seconds)
        if model_server is not None:
            model_server.stop()
        lifecycle.stop()


def _lifecycle(
    options: ServeOptions, base_path: Path, data_plane: DataPlane, routes: RouteTable
) -> ModelLifecycle[Servable]:
    model = options.model_name
    session = SessionOptions(
        tags=options.saved_model_tags,
        intra_op_threads=options.intra_op_threads,
        inter_op_threads=options.inter_op_threads,
    )
    policy = LoadPolicy(
        poll_seconds=options.file_system_poll_wait_seconds or None,
        max_retries=options.max_num_load_retries,
        retry_seconds=options.load_retry_interval_micros / 1e6,
    )
    return ModelLifecycle(
        model,
        lambda: newest_version(base_path),
        lambda version, path: Servable(data_plane, model, version, path, session, options.store),
        functools.partial(routes.set_versions, model),
        policy,
        _log,
    )


def _wait_for_first_version(
    lifecycle: ModelLifecycle[Servable], base_path: Path, model: str, stop: threading.Event
) -> bool:
    """Returns whether a version serves; False after a signal.

    Raises:
        HotrowError: the version cannot be loaded.
    """
    if not newest_version(base_path):
        _log(
            f"No versions of servable {model} found under base path {base_path}, waiting for one; "
            "did you forget to name your leaf directory as a number (eg. '/1/')?"
        )
    while not stop.is_set():
        try:
            if lifecycle.wait_until_served(_WAIT_SECONDS):
                return True
        except RequestError as err:
            raise RequestError(err.code, f"Failed to start server. Error: {err}") from err
    return False


def _announce(options: ServeOptions, lifecycle: ModelLifecycle[Servable]) -> None:
    version = next(s.version for s in lifecycle.statuses() if s.state is State.AVAILABLE)
    rest = f"127.0.0.1:{options.rest_api_port}" if options.rest_api_port else "off"
    print(
        f"Serving {options.model_name} version {version}: "
        f"gRPC 127.0.0.1:{options.port}, REST {rest}",
        flush=True,
    )


def _stop_on_signals() -> threading.Event:
    """Returns an event that the first SIGTERM or SIGINT sets; a second one ends the process."""
    stop = threading.Event()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask_to_stop)
    return stop


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
