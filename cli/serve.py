"""`platform serve`: the flags of tensorflow_model_server, with _ or -, and ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from hotrow.cli.quiet_start import import_tensorflow_quietly
from hotrow.errors import UnimplementedError
from hotrow.serving.options import ServeOptions
from hotrow.version import __version__

DEFAULTS = ServeOptions(model_base_path="-")

# Flags of tensorflow_model_server (and `device_cache_rows`, ours) without a part behind them yet,
# with TF Serving's defaults. Giving the default is harmless, another value is refused by name.
UNBUILT: dict[str, str] = {
    "allow_version_labels_for_unavailable_models": "false",
    "batching_parameters_file": "",
    "device_cache_rows": "",
    "enable_batching": "false",
    "enable_grpc_healthcheck_service": "false",
    "enable_model_warmup": "true",
    "enable_per_model_batching_parameters": "false",
    "enable_profiler": "true",
    "enable_serialization_as_tensor_content": "false",
    "enable_signature_method_name_check": "false",
    "flush_filesystem_caches": "true",
    "grpc_channel_arguments": "",
    "grpc_socket_path": "",
    "mixed_precision": "",
    "model_config_file": "",
    "model_config_file_poll_wait_seconds": "0",
    "monitoring_config_file": "",
    "num_load_threads": "0",
    "num_request_iterations_for_warmup": "0",
    "num_tflite_interpreters_per_pool": "1",
    "num_tflite_pools": "",
    "num_unload_threads": "0",
    "per_process_gpu_memory_fraction": "0",
    "platform_config_file": "",
    "prefer_tflite_model": "false",
    "remove_unused_fields_from_bundle_metagraph": "true",
    "skip_initialize_tpu": "false",
    "ssl_config_file": "",
    "tensorflow_session_config_file": "",
    "thread_pool_factory_config_file": "",
    "use_alts_credentials": "false",
    "xla_cpu_compilation_enabled": "false",
    "xla_gpu_compilation_enabled": "false",
}
_SAME_VALUE = {"1": "true", "0": "false", "0.0": "false"}


def _with_underscores(token: str) -> str:
    return token.replace("-", "_")


def _print_versions(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    import_tensorflow_quietly()
    import tensorflow as tf

    click.echo(f"TensorFlow ModelServer: hotrow {__version__}")
    click.echo(f"TensorFlow Library: {tf.__version__}")
    ctx.exit()


def _refuse_unbuilt(ctx: click.Context, param: click.Parameter, value: str) -> None:
    """Raises UnimplementedError for a value other than the default."""
    default = UNBUILT[str(param.name)]
    given = value.lower()
    if _SAME_VALUE.get(given, given) != _SAME_VALUE.get(default, default):
        raise UnimplementedError(
            f"--{param.name}={value} is not built yet; leave it out"
            + (f", or at its default {default}" if default else "")
        )


def _unbuilt_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, default in UNBUILT.items():
        command = click.option(
            f"--{name}",
            is_flag=False,
            flag_value="true",
            default=default,
            expose_value=False,
            callback=_refuse_unbuilt,
            hidden=True,
        )(command)
    return command


@click.command(
    "serve",
    context_settings={"token_normalize_func": _with_underscores},
    epilog="Flags of tensorflow_model_server that are not listed are refused by name when they "
    "have another value than their default.",
)
@click.option("--model_name", default=DEFAULTS.model_name, show_default=True)
@click.option(
    "--model_base_path",
    required=True,
    metavar="DIR",
    help="Directory of the numbered version directories; the newest one serves.",
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
    "--store",
    default=DEFAULTS.store,
    metavar="URL",
    help="Store of the embedding rows, instead of the one in the version's manifest.",
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
@click.option(
    "--rest_api_enable_cors_support",
    type=bool,
    is_flag=False,
    flag_value="true",
    default=DEFAULTS.rest_api_enable_cors_support,
    help="Let browsers of other origins read REST replies.",
)
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
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_versions,
    help="Print the versions and exit.",
)
@_unbuilt_flags
def command(
    saved_model_tags: str,
    tensorflow_session_parallelism: int,
    tensorflow_intra_op_parallelism: int,
    tensorflow_inter_op_parallelism: int,
    **flags: Any,
) -> None:
    """Serve a model with TensorFlow Serving's gRPC and REST API.

    Serves any SavedModel, exported by `platform export` or not. A new version directory is loaded
    as soon as it appears, then the older one is unloaded. SIGTERM lets running requests end.
    """
    shared = tensorflow_session_parallelism
    if shared and tensorflow_intra_op_parallelism and tensorflow_inter_op_parallelism:
        raise click.UsageError(
            "--tensorflow_session_parallelism has no effect when --tensorflow_intra_op_parallelism "
            "and --tensorflow_inter_op_parallelism are both given; leave one of them out"
        )
    options = ServeOptions(
        saved_model_tags=tuple(tag for tag in saved_model_tags.split(",") if tag),
        intra_op_threads=tensorflow_intra_op_parallelism or shared,
        inter_op_threads=tensorflow_inter_op_parallelism or shared,
        **flags,
    )
    import_tensorflow_quietly()
    from hotrow.serving.server import serve

    serve(options)
