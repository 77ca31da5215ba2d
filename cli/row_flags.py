"""Flags of `platform serve` about the rows of our exports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from hotrow.cli.store_flags import store_flags, take_store_access
from hotrow.serving.config.row_options import RowOptions

_DEFAULTS = RowOptions()
_FLAGS = {
    "store": "store",
    "store_hosts": "hosts",
    "store_timeout_ms": "timeout_ms",
    "store_max_reads": "max_reads",
    "on_store_failure": "on_failure",
    "cache_rows": "cache_rows",
    "cache_bytes": "cache_bytes",
    "cache_policy": "cache_policy",
    "cache_device": "cache_device",
    "gpu_cache_bytes": "gpu_cache_bytes",
    "cache_warm_up_rows_per_second": "warm_up_rows_per_second",
}
_OPTIONS: list[Callable[..., Any]] = [
    click.option(
        "--store",
        default=_DEFAULTS.store,
        metavar="URL",
        help="Store of the embedding rows, instead of the one in the version's manifest.",
    ),
    store_flags,
    click.option(
        "--store_hosts",
        default=_DEFAULTS.hosts,
        metavar="HOST[:PORT],...",
        help="Hosts of the stores that manifests may name; others do not get the credentials. "
        "Empty: any.",
    ),
    click.option(
        "--store_timeout_ms",
        type=int,
        default=_DEFAULTS.timeout_ms,
        show_default=True,
        help="Longest time that reading rows may take for one request.",
    ),
    click.option(
        "--store_max_reads",
        type=int,
        default=_DEFAULTS.max_reads,
        show_default=True,
        help="Reads of the store that a version has under way at a time.",
    ),
    click.option(
        "--on_store_failure",
        type=click.Choice(["fail", "default"]),
        default=_DEFAULTS.on_failure,
        show_default=True,
        help="When rows cannot be read in time: fail the request (UNAVAILABLE), or answer with "
        "default rows.",
    ),
    click.option(
        "--cache_rows",
        type=int,
        default=_DEFAULTS.cache_rows,
        show_default=True,
        help="Hot rows that each version keeps in memory; 0 means none.",
    ),
    click.option(
        "--cache_bytes",
        type=int,
        default=_DEFAULTS.cache_bytes,
        show_default=True,
        help="The same bound in bytes.",
    ),
    click.option(
        "--cache_policy",
        type=click.Choice(["lfu", "lru"]),
        default=_DEFAULTS.cache_policy,
        show_default=True,
        help="Eviction policy: the least frequently used row (counts decay over time), or the one "
        "not used for longest.",
    ),
    click.option(
        "--cache_device",
        default=_DEFAULTS.cache_device,
        show_default=True,
        metavar="cpu|gpu|gpu:N|auto",
        help="Keep the hottest rows in a GPU's memory, too, over those in memory. auto: on GPU 0 "
        "if there is one, for requests that are large enough to gain from it.",
    ),
    click.option(
        "--gpu_cache_bytes",
        type=int,
        default=_DEFAULTS.gpu_cache_bytes,
        show_default=True,
        help="Bytes of the GPU's memory that each version takes for them; 0 means as many as "
        "--cache_bytes.",
    ),
    click.option(
        "--cache_warm_up_rows_per_second",
        type=int,
        default=_DEFAULTS.warm_up_rows_per_second,
        show_default=True,
        help="Rows that a version reads from a store on the network to fill its cache before it "
        "serves, a second. Each begins at a random moment.",
    ),
]


def row_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_rows(flags: dict[str, Any]) -> RowOptions:
    """Moves the options out of a command's flags and returns them.

    Raises:
        HotrowError: a value is not legal, or a file cannot be read.
    """
    access = take_store_access(flags)
    return RowOptions(access=access, **{to: flags.pop(name) for name, to in _FLAGS.items()})
