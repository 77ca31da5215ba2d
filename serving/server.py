"""A serving process: its parts put together, from the first look at the disk to a clean end."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from hotrow.admin.access import AdminAccess
from hotrow.serving.admin.access import check_public, read_admin_access
from hotrow.serving.admin.front import start_admin
from hotrow.serving.config.cache_device import on_this_machine
from hotrow.serving.config.config_memory import ConfigMemory
from hotrow.serving.config.metrics_url import metrics_url
from hotrow.serving.config.options import ServeOptions
from hotrow.serving.config.platform_config import Platform, read_platform
from hotrow.serving.config.rest_port import request_memory_bytes, rest_request
from hotrow.serving.config.row_options import RowOptions
from hotrow.serving.config.transport import Transport
from hotrow.serving.data_plane.batching import Batching
from hotrow.serving.data_plane.data_plane import DataPlane
from hotrow.serving.data_plane.load_limits import LoadLimits
from hotrow.serving.data_plane.port_check import check_port_is_free
from hotrow.serving.data_plane.stop_signal import StopSignal
from hotrow.serving.data_plane.supervisor import Supervision
from hotrow.serving.lifecycle.config_file import ConfigFilePolling, initial_config
from hotrow.serving.lifecycle.limited_threads import LimitedThreads
from hotrow.serving.lifecycle.load_memory import LoadMemory
from hotrow.serving.lifecycle.load_policy import LoadPolicy
from hotrow.serving.lifecycle.model_lifecycle import Lost, ModelLifecycle
from hotrow.serving.lifecycle.model_service import ModelServer, check_nothing
from hotrow.serving.lifecycle.route_table import RouteTable
from hotrow.serving.lifecycle.servable import Servable
from hotrow.serving.lifecycle.served_models import ServedModels
from hotrow.serving.lifecycle.status_report import StatusReport
from hotrow.serving.lifecycle.version_metrics import version_families
from hotrow.serving.lifecycle.warm_up import warm_up
from hotrow.serving.monitoring.log_line import JSON, LogLine
from hotrow.serving.monitoring.log_relay import log_to_relay
from hotrow.serving.monitoring.native_counts import NativeCounts
from hotrow.serving.monitoring.prometheus import Monitoring, build_info, read_metrics_path
from hotrow.serving.updates.cut_counts import CutCounts
from hotrow.serving.wire.tensorflow_protos import tensorflow_version
from hotrow.version import __version__

_LOG = logging.getLogger(__name__)

# Threads that load, for each CPU, until the first models serve.
_FIRST_LOADS = 4
# Longest wait for the versions that the previous control process served.
_RESUME_SECONDS = 30.0


@dataclass(frozen=True)
class Files:
    """The contents of the files that the options name.

    Attributes:
        models: to serve.
        platform: batches, warm-up and sessions.
        transport: how clients reach it besides the ports.
        metrics_path: None: no page of metrics.
        admin: of the port for reloads and metrics; None: the ports of clients answer them.
    """

    models: ModelServerConfig
    platform: Platform
    transport: Transport
    metrics_path: str | None
    admin: AdminAccess | None


def read_files(options: ServeOptions, models: ModelServerConfig | None) -> Files:
    """Returns the contents of the files that the options name.

    Args:
        options: of the process.
        models: the models served before; None: those of the options.

    Raises:
        HotrowError: a file cannot be read, or is not legal.
    """
    return Files(
        models or initial_config(options),
        read_platform(options),
        Transport.read(options.transport),
        read_metrics_path(options.transport.monitoring_config_file),
        read_admin_access(options.admin),
    )


def check_listeners(options: ServeOptions, transport: Transport) -> None:
    """Checks that socket and ports can be listened on.

    Raises:
        HotrowError: one cannot.
    """
    transport.check_socket()
    if options.port:
        check_port_is_free(options.port, "--port")
    if options.rest_api_port:
        check_port_is_free(options.rest_api_port, "--rest_api_port", ipv6=True)


def serve(options: ServeOptions, supervision: Supervision) -> None:
    """Serves models until SIGTERM or SIGINT; then returns when running requests have ended.

    A second signal ends the process at once.

    The executable listens on its ports when every model is ready; then one line is printed on
    stdout. Changes of versions are logged.

    Raises:
        HotrowError: the configuration is wrong, a port is taken, or a model cannot be loaded.
    """
    log_to_relay()
    supervision.end_with_supervisor()
    resumed = supervision.is_resumed()
    stop = StopSignal(_end_at_the_next)
    memory = ConfigMemory(supervision.folder)
    files = read_files(options, memory.last() if resumed else None)
    options = dataclasses.replace(options, rows=_rows(options, files, supervision))
    platform, transport = files.platform, files.transport
    if not resumed:  # else the executable may listen
        check_listeners(options, transport)
    admin_sockets = files.admin.take_port() if files.admin is not None else []
    first_loads = _FIRST_LOADS * (os.cpu_count() or 1)
    data_plane = DataPlane(supervision, options.watch, _load_limits(options, first_loads))
    data_plane.wait_until_started()
    routes = RouteTable(data_plane.set_routes, options.request_log)
    loading = LimitedThreads("load", first_loads)
    changed = threading.Condition()
    report = None
    model_server = None
    admin = None
    polling = None
    batching = None
    models = None
    try:
        batching = Batching(platform, options.file_system_poll_wait_seconds, data_plane)
        cut_counts = CutCounts()
        models = _models(
            options, platform, data_plane, routes, batching, loading, memory, cut_counts, changed
        )
        report = StatusReport(
            models, changed, data_plane.trouble, cut_counts.troubles, data_plane.set_statuses
        )
        new = models.apply(files.models, resumed=resumed)
        if resumed:
            models.wait_until_settled(data_plane.routed_before(), stop.is_set, _RESUME_SECONDS)
        elif not models.wait_until_available(new, stop.is_set):
            return
        data_plane.begin()
        loading.set_most(options.num_load_threads)
        polling = ConfigFilePolling(options, models)
        monitoring = _monitoring(data_plane, models, cut_counts)
        alone = files.admin is None
        model_server = ModelServer(
            models,
            monitoring.families,
            data_plane.backend,
            check_nothing if alone else check_public,
            report.flush,
            monitoring.page if alone and files.metrics_path is not None else None,
        )
        if files.admin is not None:
            admin = start_admin(
                files.admin,
                admin_sockets,
                supervision.folder,
                models,
                report.flush,
                monitoring,
                files.metrics_path,
            )
        report.start()
        data_plane.listen(
            port=options.port,
            max_threads=options.grpc_max_threads or 0,
            rest=rest_request(options, transport.rest_tls, files.metrics_path),
            request_memory_bytes=request_memory_bytes(options.transport.request_memory_bytes),
            **transport.listen_fields(),
        )
        if resumed:
            _LOG.info("the control process serves again")
        else:
            supervision.has_begun_to_serve()  # first: the line's reader may kill this
            _announce(options, models)
        stop.wait()
    finally:
        data_plane.stop(options.drain_seconds)
        if report is not None:
            report.stop()
        if admin is not None:
            admin.stop()
        if model_server is not None:
            model_server.stop()
        if polling is not None:
            polling.stop()
        if batching is not None:
            batching.stop()
        if models is not None:
            models.stop()


def _rows(options: ServeOptions, files: Files, supervision: Supervision) -> RowOptions:
    """Returns how rows are read on this machine, with what leases say of this server."""
    admin, path = files.admin, files.metrics_path
    url = metrics_url(
        options,
        path,
        rest_tls=files.transport.rest_tls is not None,
        admin_host=admin.host if admin is not None else "",
        admin_tls=admin is not None and admin.tls is not None,
    )
    rows = on_this_machine(options.rows)
    return dataclasses.replace(rows, metrics_url=url, server=supervision.server())


def _load_limits(options: ServeOptions, first_loads: int) -> LoadLimits:
    """Returns the limits of loads; a restart loads as many at a time as a start, or fewer."""
    threads = options.num_load_threads or first_loads
    if not options.check_load_memory:
        return LoadLimits(restart_threads=threads)
    return LoadLimits(lambda: LoadMemory(options.rows).reserve, threads)


def _models(
    options: ServeOptions,
    platform: Platform,
    data_plane: DataPlane,
    routes: RouteTable,
    batching: Batching,
    loading: LimitedThreads,
    memory: ConfigMemory,
    cut_counts: CutCounts,
    changed: threading.Condition,
) -> ServedModels:
    policy = LoadPolicy(
        poll_seconds=options.file_system_poll_wait_seconds or None,
        max_retries=options.max_num_load_retries,
        retry_seconds=max(0.0, options.load_retry_interval_micros / 1e6),
    )
    unloading = LimitedThreads("unload", options.num_unload_threads)

    def make_lifecycle(model: str) -> ModelLifecycle[Servable]:
        def load(version: int, path: Path, lost: Lost) -> Servable:
            return Servable(
                data_plane,
                model,
                version,
                path,
                platform.session,
                options.rows,
                batching.of_version(path),
                warm_up(platform.warming, model, path),
                lost,
                routes.publish_again,
                cut_counts,
            )

        publish = functools.partial(routes.set_versions, model)
        return ModelLifecycle(model, load, publish, policy, loading, unloading, changed)

    return ServedModels(
        make_lifecycle,
        routes.configure,
        memory.keep,
        any_label=options.allow_version_labels_for_unavailable_models,
        log_root=options.request_log.request_log_root,
        looks=options.file_system_poll_wait_seconds >= 0,
        changed=changed,
    )


def _monitoring(data_plane: DataPlane, models: ServedModels, cut_counts: CutCounts) -> Monitoring:
    build = build_info(__version__, tensorflow_version())
    return Monitoring(
        NativeCounts(data_plane.stats).families,
        data_plane.families,
        cut_counts.families,
        lambda: [build],
        lambda: version_families(models.configured()),
    )


def _announce(options: ServeOptions, models: ServedModels) -> None:
    named = [f"{name} version {version}" for name, version in models.serving().items()]
    rest = f"127.0.0.1:{options.rest_api_port}" if options.rest_api_port else "off"
    path = options.transport.grpc_socket_path
    grpc = [f"127.0.0.1:{options.port}"] if options.port else []
    grpc += [f"unix:{path}"] if path else []
    text = f"Serving {', '.join(named) or 'no model'}: gRPC {' and '.join(grpc)}, REST {rest}"
    if options.log_format == JSON:
        text = LogLine.now("I", "hotrow/serving/server.py", text).written(JSON)
    print(text, flush=True)


def _end_at_the_next(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
