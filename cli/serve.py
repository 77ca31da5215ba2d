"""`platform serve`: the flags of tensorflow_model_server, with _ or -, and ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from hotrow.cli.admin_flags import admin_flags, take_admin
from hotrow.cli.batching_flags import batching_flags
from hotrow.cli.failures import one_line
from hotrow.cli.ineffective_flags import ineffective_flags
from hotrow.cli.request_log_flags import request_log_flags, take_request_log
from hotrow.cli.row_flags import row_flags, take_rows
from hotrow.cli.switch import switch
from hotrow.cli.transport_flags import take_transport, transport_flags
from hotrow.cli.watch_flags import take_watch, watch_flags
from hotrow.errors import HotrowError
from hotrow.serving.config.options import ServeOptions
from hotrow.serving.data_plane.supervisor import Supervision, as_arguments, supervise, this_command
from hotrow.serving.monitoring.log_line import FORMATS, JSON, TEXT, LogLine
from hotrow.serving.wire.tensorflow_protos import import_no_tensorflow, tensorflow_version
from hotrow.version import __version__

DEFAULTS = ServeOptions(model_base_path="-")

# The exit code of tensorflow_model_server for every failure.
_EXIT_FAILURE = 255


class _BadFlag(click.UsageError):
    exit_code = _EXIT_FAILURE


class _ServeCommand(click.Command):
    """A command whose flags are read as tensorflow_model_server reads its own.

    An unknown flag is reported and ignored; an unreadable value prints the usage and exits with
    255.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            left = super().parse_args(ctx, args)
        except click.UsageError as err:
            click.echo(ctx.get_help())
            if ctx.params.get("log_format") == JSON:  # it is read before other flags
                _say("E", f"Error: {' '.join(err.format_message().split())}", JSON)
                raise SystemExit(_EXIT_FAILURE) from err
            raise _BadFlag(err.format_message(), ctx) from err
        # Only the supervisor prints this, not its control process.
        for argument in [] if ctx.params["control_folder"] else ctx.args:
            text = f"unknown argument: {argument} (see 'platform serve --help')"
            _say("W", text, ctx.params["log_format"])
        return left


def _with_underscores(token: str) -> str:
    return token.replace("-", "_")


def _print_versions(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    click.echo(f"TensorFlow ModelServer: hotrow {__version__}")
    click.echo(f"TensorFlow Library: {tensorflow_version()}")
    ctx.exit()


@click.command(
    "serve",
    cls=_ServeCommand,
    context_settings={
        "token_normalize_func": _with_underscores,
        "ignore_unknown_options": True,
        "allow_extra_args": True,
    },
    epilog="The other flags of tensorflow_model_server are known, too, and have no effect or are "
    "refused by name when they have another value than their default.",
)
@click.option("--model_name", default=DEFAULTS.model_name, show_default=True)
@click.option(
    "--model_base_path",
    default="",
    metavar="DIR",
    help="Directory of the numbered version directories; the newest one serves.",
)
@click.option(
    "--model_config_file",
    default=DEFAULTS.model_config_file,
    metavar="FILE",
    help="Text ModelServerConfig: several models, version policies, labels. Takes the place of "
    "the two flags above.",
)
@click.option(
    "--model_config_file_poll_wait_seconds",
    type=float,
    default=DEFAULTS.model_config_file_poll_wait_seconds,
    show_default=True,
    help="Time between two looks into the file; 0 reads it once.",
)
@switch(
    "allow_version_labels_for_unavailable_models",
    DEFAULTS.allow_version_labels_for_unavailable_models,
    "Let a new label point to a version that does not serve.",
)
@click.option("--port", type=int, default=DEFAULTS.port, show_default=True, help="gRPC port.")
@click.option(
    "--rest_api_port",
    type=int,
    default=DEFAULTS.rest_api_port,
    show_default=True,
    help="REST port; 0 means no REST.",
)
@click.option(
    "--drain_seconds",
    type=click.FloatRange(min=0),
    default=DEFAULTS.drain_seconds,
    show_default=True,
    help="How long running requests may take to end after SIGTERM.",
)
@click.option(
    "--file_system_poll_wait_seconds",
    type=float,
    default=DEFAULTS.file_system_poll_wait_seconds,
    show_default=True,
    help="Time between two looks for versions; 0 looks once.",
)
@click.option(
    "--num_load_threads",
    type=int,
    default=DEFAULTS.num_load_threads,
    show_default=True,
    help="Versions that load at a time, of all models; 0 means one of each model.",
)
@click.option(
    "--num_unload_threads",
    type=int,
    default=DEFAULTS.num_unload_threads,
    show_default=True,
    help="Versions that unload at a time; 0 means no limit.",
)
@click.option(
    "--max_num_load_retries",
    type=int,
    default=DEFAULTS.max_num_load_retries,
    show_default=True,
    help="Further attempts after the first failed load of a version.",
)
@click.option(
    "--load_retry_interval_micros",
    type=int,
    default=DEFAULTS.load_retry_interval_micros,
    show_default=True,
    help="Time between two attempts to load.",
)
@switch(
    "check_load_memory",
    DEFAULTS.check_load_memory,
    "Refuse to load a version that needs more memory than the machine or the cgroup has left.",
)
@click.option(
    "--grpc_max_threads",
    type=click.IntRange(min=1),
    help="Concurrent gRPC requests; more are refused.  [default: 1024]",
)
@click.option(
    "--rest_api_num_threads",
    type=click.IntRange(min=1),
    help="Concurrent REST requests.  [default: 4 for each CPU]",
)
@click.option(
    "--rest_api_timeout_in_ms",
    type=int,
    default=DEFAULTS.rest_api_timeout_in_ms,
    show_default=True,
    help="Longest run of the model for one REST request.",
)
@switch(
    "rest_api_enable_cors_support",
    DEFAULTS.rest_api_enable_cors_support,
    "Let browsers of other origins read REST replies.",
)
@batching_flags
@click.option(
    "--saved_model_tags",
    default=",".join(DEFAULTS.saved_model_tags),
    show_default=True,
    metavar="TAG,..",
    help="Tags of the graph to load.",
)
@click.option(
    "--tensorflow_session_parallelism",
    type=click.IntRange(min=0),
    default=0,
    help="Threads inside an op and between ops, where the next two are not given.",
)
@click.option(
    "--tensorflow_intra_op_parallelism",
    type=click.IntRange(min=0),
    default=0,
    help="Threads inside an op.  [default: one for each CPU]",
)
@click.option(
    "--tensorflow_inter_op_parallelism",
    type=click.IntRange(min=0),
    default=0,
    help="Threads between ops.  [default: one for each CPU]",
)
@click.option(
    "--tensorflow_session_config_file",
    default=DEFAULTS.tensorflow_session_config_file,
    metavar="FILE",
    help="Text ConfigProto of TensorFlow's sessions; flags go before it.",
)
@click.option(
    "--per_process_gpu_memory_fraction",
    type=float,
    default=DEFAULTS.per_process_gpu_memory_fraction,
    help="Share of a GPU's memory that TensorFlow may take.  [default: its own choice]",
)
@click.option(
    "--mixed_precision",
    default=DEFAULTS.mixed_precision,
    metavar="TYPE",
    help="bfloat16: let TensorFlow compute in it where that is safe.",
)
@click.option(
    "--platform_config_file",
    default=DEFAULTS.platform_config_file,
    metavar="FILE",
    help="Text PlatformConfigMap; takes the place of the flags about batches, warm-up, tags and "
    "TensorFlow's sessions.",
)
@click.option(
    "--version",
    type=bool,
    is_flag=False,
    flag_value="true",
    default=False,
    show_default=False,
    metavar="",
    is_eager=True,
    expose_value=False,
    callback=_print_versions,
    help="Print the versions and exit.",
)
@click.option(
    "--log_format",
    type=click.Choice(FORMATS),
    default=DEFAULTS.log_format,
    show_default=True,
    is_eager=True,
    help="Form of the lines on standard error: TensorFlow's own, or a JSON object each.",
)
# The supervisor passes these to the control process.
@click.option("--control_folder", default="", hidden=True, is_eager=True)
@click.option("--lifeline", type=int, default=-1, hidden=True)
@transport_flags
@row_flags
@request_log_flags
@watch_flags
@admin_flags
@ineffective_flags
@click.pass_context
def command(
    ctx: click.Context,
    /,
    control_folder: str,
    lifeline: int,
    **flags: Any,
) -> None:
    """Serve models with TensorFlow Serving's gRPC and REST API.

    Serves any SavedModel, exported by `platform export` or not. A new version directory is loaded
    as soon as it appears, then the older one is unloaded. SIGTERM lets running requests end.
    """
    try:
        options = read_options(**flags)
        if not control_folder:
            raise SystemExit(_supervise(ctx.obj.arguments, options.log_format))
        import_no_tensorflow()
        from hotrow.serving.server import serve

        serve(options, Supervision(Path(control_folder), lifeline))
    except (HotrowError, OSError) as err:
        # The supervisor formats the control process's lines.
        _fail(err, TEXT if control_folder else flags["log_format"])


def read_options(saved_model_tags: str, **flags: Any) -> ServeOptions:
    """Returns the options of flags as the command has parsed them.

    Raises:
        HotrowError: a value, or a combination of flags, cannot be served.
    """
    return ServeOptions(
        saved_model_tags=tuple(tag for tag in saved_model_tags.split(",") if tag),
        transport=take_transport(flags),
        request_log=take_request_log(flags),
        rows=take_rows(flags),
        watch=take_watch(flags),
        admin=take_admin(flags),
        **flags,
    )


def _supervise(arguments: Sequence[str], log_format: str) -> int:
    def command(supervision: Supervision) -> list[str]:
        return this_command([*arguments, *as_arguments(supervision)])

    return supervise(command, log_format)


def _say(level: str, text: str, log_format: str) -> None:
    """Prints an error of the command itself; the text form shows it unchanged."""
    click.echo(LogLine.now(level, "", text).written(log_format), err=True)


def _fail(err: Exception, log_format: str) -> NoReturn:
    _say("E", f"Failed to start server. Error: {one_line(err)}", log_format)
    raise SystemExit(_EXIT_FAILURE) from err
