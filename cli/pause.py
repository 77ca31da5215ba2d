"""`platform pause`: stops a trainer that learns online between two steps."""

from __future__ import annotations

import getpass
import socket

import click

from hotrow.cli.trainer_flags import take_trainer_access, trainer_flags
from hotrow.cli.trainer_place import find_trainer


@click.command("pause")
@click.argument("place", metavar="RUN_DIR|HOST:PORT")
@click.option(
    "--reason", metavar="TEXT", help="For its status and other operators.  [default: who paused]"
)
@trainer_flags
def command(place: str, reason: str | None, **flags: str) -> None:
    """Pause a trainer that learns online: it reads, trains and publishes nothing.

    Servers go on with the last cut, and events wait in the source. `platform resume` goes on with
    the next event.

    \b
    Examples:
      platform pause runs/shop --reason "the store is moved"
      platform pause train-3:8600 --token_file operator.token
    """  # noqa: D301 (click wants a real \b)
    access = take_trainer_access(flags)
    with find_trainer(place).client(access) as trainer:
        state = trainer.pause(reason or f"by {_user()}@{socket.gethostname()}")
    click.echo(f"{state.run} is paused at step {state.step:,}: {state.reason}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        return "an operator"
