"""A click group whose commands are imported only when they run.

`platform --help` must not import TensorFlow, which takes seconds, so the group itself holds each
command's one-line help.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping

import click

from hotrow.errors import UnimplementedError, nearest


class LazyGroup(click.Group):
    """A group of commands `<package>.<name>:command`.

    Attributes:
        package: where the modules are.
        lazy: one-line help by command name, in the order of the listing.
    """

    package: str = "hotrow.cli"
    lazy: Mapping[str, str]

    def __init__(self, *, lazy: Mapping[str, str], name: str, help: str) -> None:
        """Makes the group; imports nothing."""
        super().__init__(name=name, help=help, no_args_is_help=True)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of the commands whose modules exist."""
        return [name for name in self.lazy if self._is_built(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns a command; None if there is none of that name.

        Raises:
            UnimplementedError: the command is planned but its module is not there.
        """
        if cmd_name not in self.lazy:
            return None
        if not self._is_built(cmd_name):
            raise UnimplementedError(f"platform {cmd_name}: this command is not built yet")
        module = importlib.import_module(f"{self.package}.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the named command and the arguments left; an unknown name is a usage error."""
        if args and args[0] not in self.lazy and not args[0].startswith("-"):
            legal = self.list_commands(ctx)
            ctx.fail(f"no command {args[0]!r}{nearest(args[0], legal)}; legal: {', '.join(legal)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands without importing them."""
        rows = [(name, self.lazy[name]) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def _is_built(self, name: str) -> bool:
        return importlib.util.find_spec(f"{self.package}.{name}") is not None
