"""Options of commands for access to a store; see `StoreAccess`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from hotrow.store.access import PASSWORD_VARIABLE, StoreAccess, read_access


def _file(name: str, text: str) -> Callable[..., Any]:
    return click.option(f"--store_{name}", default="", metavar="FILE", help=text)


_OPTIONS = [
    click.option(
        "--store_user", default="", help="User of the Redis store, in place of the URL's."
    ),
    _file("password_file", f"Holds its password. Default: the variable {PASSWORD_VARIABLE}."),
    _file("ca", "Authorities (PEM) that certify it. Default: the system's."),
    _file("cert", "Certificate (PEM) of this client."),
    _file("key", "Its private key (PEM)."),
]


def store_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_store_access(flags: dict[str, Any]) -> StoreAccess:
    """Moves the access out of a command's options and returns it.

    Raises:
        HotrowError: see `read_access`.
    """
    return read_access(
        username=flags.pop("store_user"),
        password_file=flags.pop("store_password_file"),
        ca_file=flags.pop("store_ca"),
        cert_file=flags.pop("store_cert"),
        key_file=flags.pop("store_key"),
    )
