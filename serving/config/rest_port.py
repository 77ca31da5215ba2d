"""What the executable is asked for about REST, and about the memory of requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hotrow.memory_bounds import MemoryBound, memory_bounds
from hotrow.protos import control_pb2
from hotrow.serving.config.options import ServeOptions
from hotrow.serving.config.tls_message import tls_message
from hotrow.tls import Tls

# Of the memory that this process may use: a model, its cache and its store need the rest.
_SHARE = 4
_LEAST_BYTES = 64 << 20


def rest_request(
    options: ServeOptions, tls: Tls | None, metrics_path: str | None
) -> control_pb2.ListenRequest.Rest | None:
    """Returns how the executable answers REST; None: it does not.

    Args:
        options: of the process.
        tls: of the port; None for plain HTTP.
        metrics_path: path of the page of metrics; None: there is none.
    """
    if not options.rest_api_port:
        return None
    return control_pb2.ListenRequest.Rest(
        port=options.rest_api_port,
        tls=tls_message(tls),
        max_threads=options.rest_api_num_threads or 0,
        max_body_bytes=options.transport.rest_api_max_body_bytes,
        read_millis=options.transport.rest_api_read_timeout_in_ms,
        run_millis=options.rest_api_timeout_in_ms,
        cors=options.rest_api_enable_cors_support,
        metrics_path=metrics_path or "",
        metrics_elsewhere=bool(options.admin.admin_port),
    )


def request_memory_bytes(
    given: int | None, bounds: Callable[[], Sequence[MemoryBound]] = memory_bounds
) -> int:
    """Returns how many bytes all requests under way may hold together.

    Args:
        given: the flag; None: a quarter of the memory that this process may use.
        bounds: returns those of the memory; the executable has those of this process.
    """
    if given is not None:
        return given
    most = min((bound.most_bytes for bound in bounds()), default=0)
    return max(_LEAST_BYTES, most // _SHARE)
