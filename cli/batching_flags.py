"""Flags of `platform serve` about batches and warm-up; see `ServeOptions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from hotrow.cli.switch import switch
from hotrow.serving.config.options import ServeOptions

_DEFAULTS = ServeOptions(model_base_path="-")


_OPTIONS = [
    switch(
        "enable_batching",
        _DEFAULTS.enable_batching,
        "Run requests that come at the same time together.",
    ),
    click.option(
        "--batching_parameters_file",
        default=_DEFAULTS.batching_parameters_file,
        metavar="FILE",
        help="Text BatchingParameters; read again when it changes.",
    ),
    switch(
        "enable_per_model_batching_parameters",
        _DEFAULTS.enable_per_model_batching_parameters,
        "With --enable_batching: a version batches as batching_params.pbtxt in its directory says.",
    ),
    switch(
        "enable_model_warmup",
        _DEFAULTS.enable_model_warmup,
        "Run a version's warm-up requests before it serves.",
    ),
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
