"""One line and an exit code for everything that can end a command."""

from __future__ import annotations

import sys
import traceback

import click

from hotrow.colors import colored
from hotrow.errors import HotrowError

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_NOT_TAKEN = 3  # the export is committed, and not all servers have taken it in time
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count


def report_failure(err: BaseException, debug: bool) -> int:
    """Prints one line for `err` on standard error and returns the exit code.

    Args:
        err: what a command raised.
        debug: print the traceback first.

    Returns:
        The error's own code: 2 for usage, 1 for failure, 130 for an interruption, or what
        `SystemExit` carries.
    """
    if debug:
        traceback.print_exception(err)
    if isinstance(err, SystemExit):
        return _system_exit_code(err)
    if isinstance(err, KeyboardInterrupt | click.Abort):
        reason = str(err) or (str(err.__cause__ or "")) or "Interrupted"
        click.echo(reason, err=True)
        return EXIT_INTERRUPTED
    if isinstance(err, click.exceptions.NoArgsIsHelpError):
        err.show()
        return EXIT_USAGE
    label = colored("Error:", "red", sys.stderr)
    click.echo(f"{label} {one_line(err)}", err=True)
    if isinstance(err, HotrowError | click.ClickException):
        return err.exit_code
    return EXIT_FAILURE


def exit_code_of(err: BaseException) -> int:
    """Returns the exit code of what a command raised; see `report_failure`."""
    if isinstance(err, SystemExit):
        return err.code if isinstance(err.code, int) else EXIT_FAILURE if err.code else 0
    if isinstance(err, KeyboardInterrupt | click.Abort):
        return EXIT_INTERRUPTED
    if isinstance(err, HotrowError | click.ClickException):
        return err.exit_code
    return EXIT_FAILURE


def one_line(err: BaseException) -> str:
    """Returns the line for what a command raised, without its label."""
    if isinstance(err, click.UsageError):
        path = err.ctx.command_path if err.ctx else "platform"
        return f"{_joined(err.format_message()).rstrip('.')} (see '{path} --help')"
    if isinstance(err, click.ClickException):
        return _joined(err.format_message())
    if isinstance(err, HotrowError):
        return _joined(str(err))
    if isinstance(err, OSError) and err.strerror:
        where = f": {err.filename}" if err.filename else ""
        return f"{err.strerror}{where}"
    text = _joined(str(err))
    name = type(err).__name__
    return f"{name}: {text[:300]} ('platform --debug ...' shows where)" if text else name


def _joined(text: str) -> str:
    return " ".join(text.split())


def _system_exit_code(err: SystemExit) -> int:
    if err.code is None:
        return 0
    if isinstance(err.code, int):
        return err.code
    print(err.code, file=sys.stderr)
    return EXIT_FAILURE
