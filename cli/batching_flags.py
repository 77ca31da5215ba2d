"""Flags of `platform serve` about batches and warm-up; see `ServeOptions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from hotrow.serving.options import ServeOptions

_DEFAULTS = ServeOptions(model_base_path="-")


def _switch(name: str, text: str) -> Callable[..., Any]:
    """Returns an option that may be given as `--name`, `--name=true` or `--name=false`."""
    return click.option(
        f"--{name}",
        type=bool,
        is_flag=False,
        flag_value="true",
        default=getattr(_DEFAULTS, name),
        help=text,
    )


_OPTIONS = [
    _switch("enable_batching", "Run requests that come at the same time together."),
    click.option(
        "--batching_parameters_file",
        default=_DEFAULTS.batching_parameters_file,
        metavar="FILE",
        help="Text BatchingParameters; read again when it changes.",
    ),
    _switch(
        "enable_per_model_batching_parameters",
        "With --enable_batching: a version batches as batching_params.pbtxt in its directory says.",
    ),
    _switch("enable_model_warmup", "Run a version's warm-up requests before it serves."),
    click.option(
        "--num_request_iterations_for_warmup",
        type=click.IntRange(min=0),
        default=_DEFAULTS.num_request_iterations_for_warmup,
        help="Runs of each warm-up request; 0 means 1.",
    ),
]


def batching_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
