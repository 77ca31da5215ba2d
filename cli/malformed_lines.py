"""Which lines of a data file a command left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hotrow.trainer.data import Malformed


def report_malformed(malformed: Malformed) -> None:
    """Prints one line on standard error if lines were left out: how many, the first and why."""
    if malformed.count:
        click.echo(f"left out: {malformed}", err=True)
