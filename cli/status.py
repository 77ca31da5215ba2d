"""`platform status`: a trainer that learns online, its store and its servers."""

from __future__ import annotations

import json
import ssl
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from hotrow.cli.status_reading import Sought, StatusReading
from hotrow.cli.status_report import Bounds, Report
from hotrow.cli.store_flags import store_flags, take_store_access
from hotrow.cli.token_file import read_token
from hotrow.cli.trainer_flags import take_trainer_access, trainer_flags
from hotrow.errors import InvalidArgumentError


@click.command("status")
@click.argument("place", metavar="[RUN_DIR|HOST:PORT]", required=False)
@click.option("--watch", is_flag=True, help="Draw it again until Ctrl-C.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object; with --watch one on each line."
)
@click.option("--store", metavar="URL", help="The store.  [default: the trainer's]")
@click.option("--model", metavar="NAME", help="The model.  [default: the trainer's]")
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="HOST:PORT",
    help="A server's page of metrics, beside those that the store knows; may be repeated. "
    "https://HOST:PORT/PATH is understood, too.",
)
@click.option(
    "--server_token_file",
    default="",
    metavar="FILE",
    help="Its first line is the token for these pages (--admin_token_file of `platform serve`).",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Time between two looks, over which rates are measured.",
)
@click.option(
    "--behind_seconds",
    type=click.FloatRange(min=0),
    default=Bounds.behind_seconds,
    show_default=True,
    help="How long a server may be behind the newest cut.",
)
@click.option(
    "--lag_seconds",
    type=click.FloatRange(min=0),
    default=Bounds.lag_seconds,
    show_default=True,
    help="How far the trainer may be behind its source.",
)
@trainer_flags
@store_flags
def command(
    place: str | None,
    watch: bool,
    as_json: bool,
    seconds: float,
    behind_seconds: float,
    lag_seconds: float,
    **flags: Any,
) -> int:
    """Show a trainer that learns online, its store, and the servers that follow it.

    Without RUN_DIR or HOST:PORT (online.admin), the trainer is the one that publishes --model to
    --store. A part that does not answer says why; the others are shown.

    Exit codes: 0, all parts answer and nothing is wrong; 3, something is behind, closed, paused or
    failing; 1, a part does not answer. With --watch, Ctrl-C ends it with 0.

    \b
    Examples:
      platform status runs/shop --watch
      platform status --store redis+cluster://10.0.0.1 --model shop --json
    """  # noqa: D301 (click wants a real \b)
    ca_file = flags["ca_file"]
    trainer_access = take_trainer_access(flags)
    sought = Sought(
        place=place,
        store=flags.pop("store"),
        model=flags.pop("model"),
        servers=flags.pop("servers"),
        trainer_access=trainer_access,
        server_token=read_token("server_token_file", flags.pop("server_token_file")),
        server_tls=_authorities(ca_file),
        store_access=take_store_access(flags),
        bounds=Bounds(behind_seconds, lag_seconds),
    )
    with StatusReading(sought) as reading:
        reports = _reports(reading, seconds)
        if not watch:
            report = next(reports)
            _show_once(report, as_json)
            return report.exit_code
        try:
            _show_each(reports, as_json)
        except KeyboardInterrupt:
            return 0
        raise AssertionError("watching ended by itself")


def _authorities(ca_file: str) -> ssl.SSLContext | None:
    """Returns a context for https; None: that of the system's authorities.

    Raises:
        InvalidArgumentError: the file has no certificates.
    """
    try:
        return ssl.create_default_context(cafile=ca_file) if ca_file else None
    except ssl.SSLError as err:
        raise InvalidArgumentError(
            f"--ca_file {ca_file} has no certificates ({err}); give a PEM file"
        ) from err


def _reports(reading: StatusReading, seconds: float) -> Iterator[Report]:
    """Yields what is seen each few seconds; the first look is for rates only."""
    reading.read()
    while True:
        time.sleep(seconds)
        yield reading.read()


def _show_once(report: Report, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=1))
        return
    from hotrow.cli.status_view import console, draw

    console().print(draw(report))


def _show_each(reports: Iterator[Report], as_json: bool) -> None:
    if as_json:
        for report in reports:
            click.echo(json.dumps(report.as_dict()))
        return
    from rich.live import Live

    from hotrow.cli.status_view import console, draw

    screen = console()
    if not sys.stdout.isatty():
        for report in reports:
            screen.print(draw(report))
        return
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        for report in reports:
            live.update(draw(report), refresh=True)
