"""Options that are on or off, as `tensorflow_model_server` reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def switch(name: str, default: bool, text: str) -> Callable[..., Any]:
    """Returns an option that may be given as `--name`, `--name=true` or `--name=false`."""
    return click.option(
        f"--{name}", type=bool, is_flag=False, flag_value="true", default=default, help=text
    )
