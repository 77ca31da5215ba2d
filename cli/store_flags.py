"""Options of commands for access to a store; see `StoreAccess`."""

from __future__ import annotations

from typing import Any

import click

from hotrow.cli.option_group import file_option, option_group
from hotrow.store.access import PASSWORD_VARIABLE, StoreAccess, read_access

store_flags = option_group(
    click.option(
        "--store_user", default="", help="User of the Redis store, in place of the URL's."
    ),
    file_option(
        "--store_password_file", f"Holds its password. Default: the variable {PASSWORD_VARIABLE}."
    ),
    file_option("--store_ca", "Authorities (PEM) that certify it. Default: the system's."),
    file_option("--store_cert", "Certificate (PEM) of this client."),
    file_option("--store_key", "Its private key (PEM)."),
)
"""Adds the options to a command."""


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
