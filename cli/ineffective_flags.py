"""Flags of tensorflow_model_server that are accepted and ignored here, and why.

A command line made for TensorFlow Serving therefore still works.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_NO_LITE = "TensorFlow Lite models are not run, saved_model.pb is used"
_TRUE = "true"
_FALSE = "false"
_PLAIN = {"1": _TRUE, "0": _FALSE}

# Name: default and why another value changes nothing.
INEFFECTIVE: dict[str, tuple[str, str]] = {
    "enable_profiler": (_TRUE, "there is no profiler service"),
    "flush_filesystem_caches": (_TRUE, "local file systems have no such cache"),
    "num_tflite_interpreters_per_pool": ("1", _NO_LITE),
    "num_tflite_pools": ("", _NO_LITE),
    "prefer_tflite_model": (_FALSE, _NO_LITE),
    "remove_unused_fields_from_bundle_metagraph": (_TRUE, "whole graphs are never kept"),
    "skip_initialize_tpu": (_FALSE, "there are no TPUs"),
    "thread_pool_factory_config_file": ("", "runs have TensorFlow's own threads"),
    "xla_cpu_compilation_enabled": (_FALSE, "functions to be compiled always are"),
    "xla_gpu_compilation_enabled": (_FALSE, "functions to be compiled always are"),
}


def _report(ctx: click.Context, param: click.Parameter, value: str) -> None:
    default, reason = INEFFECTIVE[str(param.name)]
    given = value.lower()
    if ctx.params["control_folder"]:
        return  # its supervisor has printed it
    if given != default and _PLAIN.get(given, given) != default:
        click.echo(f"--{param.name}={value} has no effect: {reason}", err=True)


def ineffective_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags to a command; a value that is not the default is reported."""
    for name, (default, _) in INEFFECTIVE.items():
        command = click.option(
            f"--{name}",
            is_flag=False,
            flag_value=_TRUE,
            default=default,
            expose_value=False,
            callback=_report,
            hidden=True,
        )(command)
    return command
