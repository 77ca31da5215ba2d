"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Of a command."""


def file_option(flag: str, text: str) -> Decorator:
    """Returns an option that names a file; it is empty by default."""
    return click.option(flag, default="", metavar="FILE", help=text)


def option_group(*options: Decorator) -> Decorator:
    """Returns a decorator that adds the options to a command, in their order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add
