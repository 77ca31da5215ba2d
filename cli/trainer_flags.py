"""Options of commands that call a trainer's admin service."""

from __future__ import annotations

from typing import Any

import click

from hotrow.cli.option_group import file_option, option_group
from hotrow.cli.trainer_client import TrainerAccess, read_trainer_access

trainer_flags = option_group(
    file_option(
        "--token_file", "Its first line is the token for the trainer (online.admin_token_file)."
    ),
    click.option(
        "--tls", is_flag=True, help="Call the trainer by TLS, also where its run does not say so."
    ),
    file_option("--ca_file", "Authorities (PEM) that certify the trainer; implies --tls."),
    file_option("--cert_file", "Certificate (PEM) of this client."),
    file_option("--key_file", "Its private key (PEM)."),
)
"""Adds the options to a command."""


def take_trainer_access(flags: dict[str, Any]) -> TrainerAccess:
    """Moves the access out of a command's options and returns it.

    Raises:
        HotrowError: see `read_trainer_access`.
    """
    return read_trainer_access(
        token_file=flags.pop("token_file"),
        tls=flags.pop("tls"),
        ca_file=flags.pop("ca_file"),
        cert_file=flags.pop("cert_file"),
        key_file=flags.pop("key_file"),
    )
