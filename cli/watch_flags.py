"""Flags of `platform serve` about an executable that hangs; see `WatchOptions`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from hotrow.serving.config.watch_options import WatchOptions

_DEFAULTS = WatchOptions()
_HELP = {
    "unready_after_seconds": "/v1/health/ready is 503 when hotrow-server has not answered for so "
    "long.",
    "restart_after_seconds": "hotrow-server is killed and started again when it has not answered "
    "for so long; 0 means never.",
    "load_timeout_seconds": "Longest time for loading or freeing a version, or taking an "
    "incremental export; 0 means no limit.",
}


def watch_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags to a command."""
    for name in reversed(_HELP):
        option = click.option(
            f"--{name}",
            type=float,
            default=getattr(_DEFAULTS, name),
            show_default=True,
            help=_HELP[name],
        )
        command = option(command)
    return command


def take_watch(flags: dict[str, Any]) -> WatchOptions:
    """Moves the options out of a command's flags and returns them.

    Raises:
        HotrowError: a value is not legal.
    """
    return WatchOptions(**{field.name: flags.pop(field.name) for field in fields(WatchOptions)})
