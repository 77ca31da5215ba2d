"""The command `platform`, or `hotrow`: options of all commands, and where errors end."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from hotrow.cli.failures import report_failure
from hotrow.cli.invocation import Invocation
from hotrow.cli.lazy_group import LazyGroup
from hotrow.version import __version__

# The second is for machines where another product has a command `platform`.
NAMES = ("platform", "hotrow")
COMMANDS = {
    "train": "Train a model from a configuration file.",
    "export": "Write a trained model as a servable version directory.",
    "serve": "Serve models with TensorFlow Serving's API.",
    "predict": "Send rows of a data file to a server and print scores.",
    "evaluate": "Measure AUC, logloss and calibration of a served model.",
    "data": "Generate, convert and inspect data files.",
    "delete": "Delete rows of exported versions from a store.",
    "versions": "List what servers show, and what a rollback can bring back.",
    "rollback": "Go back to an earlier version or incremental export.",
    "status": "Show a trainer that learns online, its store and its servers.",
    "pause": "Stop a trainer that learns online between two steps.",
    "resume": "Let a paused trainer go on, or open its gate.",
    "inspect": "Show what a run, a checkpoint, a version directory or a store holds.",
}


def _set_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.ensure_object(Invocation).debug = value


group = LazyGroup(
    name="platform",
    help="Train recommender models with huge embedding tables, and serve them online.",
    lazy=COMMANDS,
)
group.params += [
    click.Option(
        ["--debug"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_set_debug,
        help="Show the traceback of an error.",
    ),
]
click.version_option(__version__)(group)
group.context_settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted. An error is one line on
    standard error.

    Args:
        arguments: of the command line; None: those of the process.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # hides TensorFlow's start-up lines
    args = list(sys.argv[1:] if arguments is None else arguments)
    invocation = Invocation(arguments=args)
    called = Path(sys.argv[0]).name
    name = called if called in NAMES else NAMES[0]
    try:
        code = group.main(args, prog_name=name, standalone_mode=False, obj=invocation)
    except (Exception, SystemExit, KeyboardInterrupt) as err:
        return report_failure(err, invocation.debug)
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
