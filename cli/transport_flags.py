"""Flags of `platform serve` about how clients reach it; see `TransportOptions`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from hotrow.cli.switch import switch
from hotrow.serving.config.transport_options import TransportOptions

DEFAULTS = TransportOptions()


def _file(name: str, text: str) -> Callable[..., Any]:
    return click.option(f"--{name}", default="", metavar="FILE", help=text)


_OPTIONS = [
    click.option(
        "--grpc_socket_path",
        default="",
        metavar="PATH",
        help="Unix socket for gRPC, besides the port; --port=0 leaves the port out.",
    ),
    click.option(
        "--grpc_channel_arguments",
        default="",
        metavar="KEY=VALUE,..",
        help="Settings of gRPC's server.",
    ),
    _file("ssl_config_file", "Text SSLConfig: TLS on the gRPC port."),
    switch(
        "use_alts_credentials", DEFAULTS.use_alts_credentials, "Is refused; use --ssl_config_file."
    ),
    switch(
        "enable_grpc_healthcheck_service",
        DEFAULTS.enable_grpc_healthcheck_service,
        "Answer grpc.health.v1 on the gRPC port.",
    ),
    switch(
        "enable_grpc_reflection",
        DEFAULTS.enable_grpc_reflection,
        "Describe services and messages to gRPC clients (reflection).",
    ),
    switch(
        "enable_serialization_as_tensor_content",
        DEFAULTS.enable_serialization_as_tensor_content,
        "Send outputs over gRPC as tensor_content.",
    ),
    switch(
        "enable_signature_method_name_check",
        DEFAULTS.enable_signature_method_name_check,
        "Refuse requests whose signature is of another kind.",
    ),
    _file("monitoring_config_file", "Text MonitoringConfig: metrics on the REST port."),
    _file("rest_api_ssl_config_file", "Text SSLConfig: TLS on the REST port."),
    click.option(
        "--rest_api_max_body_bytes",
        type=int,
        default=DEFAULTS.rest_api_max_body_bytes,
        show_default=True,
        help="Longest body of a REST request, uncompressed.",
    ),
    click.option(
        "--rest_api_read_timeout_in_ms",
        type=int,
        default=DEFAULTS.rest_api_read_timeout_in_ms,
        show_default=True,
        help="Longest wait for the headers of a REST request, and for its body.",
    ),
    click.option(
        "--request_memory_bytes",
        type=int,
        help="Bytes that all requests under way hold together, over gRPC and REST; more are "
        "refused.  [default: a quarter of the memory, at least 64 MiB]",
    ),
]


def transport_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_transport(flags: dict[str, Any]) -> TransportOptions:
    """Moves the options out of a command's flags and returns them."""
    return TransportOptions(
        **{field.name: flags.pop(field.name) for field in fields(TransportOptions)}
    )
