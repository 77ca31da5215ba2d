"""`platform resume`: lets a trainer that learns online go on after a pause or a closed gate."""

from __future__ import annotations

import click

from hotrow.cli.trainer_flags import take_trainer_access, trainer_flags
from hotrow.cli.trainer_place import find_trainer


@click.command("resume")
@click.argument("place", metavar="RUN_DIR|HOST:PORT")
@click.option(
    "--force",
    is_flag=True,
    help="Publish the next cut whatever its gates say; later ones are compared with it.",
)
@trainer_flags
def command(place: str, force: bool, **flags: str) -> None:
    """Let a trainer go on: after `platform pause`, a closed gate, or a rollback.

    A gate that was closed is open again, and the next cut has to pass it, unless --force is given.

    \b
    Examples:
      platform resume runs/shop
      platform resume runs/shop --force
    """  # noqa: D301 (click wants a real \b)
    access = take_trainer_access(flags)
    with find_trainer(place).client(access) as trainer:
        state = trainer.resume(force)
    click.echo(f"{state.run} goes on at step {state.step:,}")
