"""Flags of `platform serve` about the port for reloads and metrics; see `AdminOptions`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from hotrow.serving.config.admin_options import AdminOptions

_OPTIONS = [
    click.option(
        "--admin_port",
        type=int,
        default=AdminOptions.admin_port,
        show_default=True,
        help="Port for reloads (gRPC) and metrics (HTTP), which the other ports then refuse; 0 "
        "means that those answer them.",
    ),
    click.option(
        "--admin_host",
        metavar="HOST",
        help="Name or address for the admin port.  [default: localhost; with tokens or "
        "certificates of clients every interface]",
    ),
    click.option(
        "--admin_token_file",
        default=AdminOptions.admin_token_file,
        metavar="FILE",
        help="Tokens, one a line: requests to the admin port need one.",
    ),
    click.option(
        "--admin_ssl_config_file",
        default=AdminOptions.admin_ssl_config_file,
        metavar="FILE",
        help="Text SSLConfig: TLS on the admin port.",
    ),
]


def admin_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_admin(flags: dict[str, Any]) -> AdminOptions:
    """Moves the options out of a command's flags and returns them.

    Raises:
        HotrowError: a value is not legal.
    """
    return AdminOptions(**{field.name: flags.pop(field.name) for field in fields(AdminOptions)})
