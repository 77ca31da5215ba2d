"""Flags of `platform serve` about logged requests; see `RequestLogOptions`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from hotrow.serving.config.request_log_options import RequestLogOptions

_HELP = {
    "request_log_root": "Logged requests: the directory below which all files must lie; empty: "
    "any.",
    "request_log_file_bytes": "Logged requests: length after which another file begins.",
    "request_log_file_seconds": "Logged requests: age after which another file begins.",
    "request_log_queue_bytes": "Logged requests: bytes that may wait for the disk; more are "
    "dropped.",
}


def request_log_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags to a command."""
    for field in reversed(fields(RequestLogOptions)):
        command = click.option(
            f"--{field.name}",
            type=type(field.default),
            default=field.default,
            show_default=True,
            help=_HELP[field.name],
        )(command)
    return command


def take_request_log(flags: dict[str, Any]) -> RequestLogOptions:
    """Moves the options out of a command's flags and returns them."""
    return RequestLogOptions(
        **{field.name: flags.pop(field.name) for field in fields(RequestLogOptions)}
    )
