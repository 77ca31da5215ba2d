"""Options of a serving process: flags of tensorflow_model_server, and ours."""

from __future__ import annotations

from dataclasses import dataclass, field

from hotrow.errors import InvalidArgumentError
from hotrow.serving.config.admin_options import AdminOptions
from hotrow.serving.config.request_log_options import RequestLogOptions
from hotrow.serving.config.row_options import RowOptions
from hotrow.serving.config.transport_options import TransportOptions
from hotrow.serving.config.watch_options import WatchOptions
from hotrow.serving.monitoring.log_line import TEXT


@dataclass(frozen=True)
class ServeOptions:
    """What `platform serve` serves, where and how; names and defaults are TF Serving's.

    Attributes:
        model_name: the model's name in requests; ignored with a model_config_file.
        model_base_path: directory of the numbered version directories; likewise.
        model_config_file: text ModelServerConfig, for several models; "" means none.
        model_config_file_poll_wait_seconds: time between two reads of it; 0 reads it once.
        allow_version_labels_for_unavailable_models: whether a new label may point to a version
            that does not serve.
        port: TCP port of gRPC; 0 means none, which requires a Unix socket.
        rest_api_port: TCP port of REST; 0 means no REST.
        rest_api_num_threads: None means 4 for each CPU.
        rest_api_timeout_in_ms: longest run of a model for a REST request.
        rest_api_enable_cors_support: whether browsers may read REST replies.
        grpc_max_threads: gRPC requests answered at a time, more are refused; None means 1024
            (TF Serving: 4 for each CPU, so that a burst of short requests is refused).
        file_system_poll_wait_seconds: time between two polls for versions; 0 polls once, a negative
            value never.
        num_load_threads: versions of all models that load at a time, once the first ones serve;
            0 means one per model.
        num_unload_threads: versions that unload at a time; 0 means no limit.
        max_num_load_retries: further attempts after the first failed load of a version.
        load_retry_interval_micros: time between two attempts; a negative value means no pause.
        enable_batching: whether requests of a version run together.
        batching_parameters_file: text BatchingParameters; "" means TF Serving's defaults.
        enable_per_model_batching_parameters: whether batching_params.pbtxt in a version's directory
                sets how it batches; without that file it does not batch.
        enable_model_warmup: whether a version runs its warm-up requests before it serves.
        num_request_iterations_for_warmup: runs of each of them; 0 means 1.
        saved_model_tags: tags of the graph to load.
        tensorflow_session_parallelism: threads inside an op and between ops, where neither of the
            next two is given; 0 lets TensorFlow choose.
        tensorflow_intra_op_parallelism: threads inside an op.
        tensorflow_inter_op_parallelism: threads between ops.
        tensorflow_session_config_file: text ConfigProto of every session; "" means none.
        per_process_gpu_memory_fraction: of the memory of a GPU; 0 lets TensorFlow choose.
        mixed_precision: "bfloat16" lets TensorFlow compute in it where that is safe.
        platform_config_file: text PlatformConfigMap, which replaces all flags about batches,
            warm-up and sessions; "" means none.
        rows: how the rows of our exports are read.
        drain_seconds: how long running requests may take to end after SIGTERM.
        transport: how clients reach the server besides the ports.
        request_log: bounds of logged requests.
        log_format: of the lines on standard error; "text" (TensorFlow's own form) or "json".
        watch: when the executable counts as hung.
        admin: a port for reloads and metrics alone.
        check_load_memory: whether a load that needs more memory than is left is refused.
    """

    model_name: str = "default"
    model_base_path: str = ""
    model_config_file: str = ""
    model_config_file_poll_wait_seconds: float = 0.0
    allow_version_labels_for_unavailable_models: bool = False
    port: int = 8500
    rest_api_port: int = 0
    rest_api_num_threads: int | None = None
    rest_api_timeout_in_ms: int = 30_000
    rest_api_enable_cors_support: bool = False
    grpc_max_threads: int | None = None
    file_system_poll_wait_seconds: float = 1.0
    num_load_threads: int = 0
    num_unload_threads: int = 0
    max_num_load_retries: int = 5
    load_retry_interval_micros: int = 60_000_000
    enable_batching: bool = False
    batching_parameters_file: str = ""
    enable_per_model_batching_parameters: bool = False
    enable_model_warmup: bool = True
    num_request_iterations_for_warmup: int = 0
    saved_model_tags: tuple[str, ...] = ("serve",)
    tensorflow_session_parallelism: int = 0
    tensorflow_intra_op_parallelism: int = 0
    tensorflow_inter_op_parallelism: int = 0
    tensorflow_session_config_file: str = ""
    per_process_gpu_memory_fraction: float = 0.0
    mixed_precision: str = ""
    platform_config_file: str = ""
    rows: RowOptions = field(default_factory=RowOptions)
    drain_seconds: float = 30.0
    transport: TransportOptions = field(default_factory=TransportOptions)
    request_log: RequestLogOptions = field(default_factory=RequestLogOptions)
    log_format: str = TEXT
    watch: WatchOptions = field(default_factory=WatchOptions)
    admin: AdminOptions = field(default_factory=AdminOptions)
    check_load_memory: bool = True

    def __post_init__(self) -> None:
        """Refuses values that cannot be served.

        Raises:
            InvalidArgumentError: names the flag, the value and what is allowed.
        """
        if not self.model_base_path and not self.model_config_file:
            raise InvalidArgumentError(
                "Both server_options.model_base_path and server_options.model_config_file are "
                "empty!"
            )
        if not self.model_name and not self.model_config_file:
            raise InvalidArgumentError("--model_name is empty; give the name requests will use")
        _check_range("port", self.port, 0, 65535)
        if self.port == 0 and not self.transport.grpc_socket_path:
            raise InvalidArgumentError(
                "--port is 0 and --grpc_socket_path is empty; give one of them for gRPC"
            )
        _check_range("rest_api_port", self.rest_api_port, 0, 65535)
        if self.port and self.port == self.rest_api_port:
            raise InvalidArgumentError(
                f"--port and --rest_api_port are both {self.port}; gRPC and REST need a port each"
            )
        for flag in ("port", "rest_api_port"):
            if self.admin.admin_port and self.admin.admin_port == getattr(self, flag):
                raise InvalidArgumentError(
                    f"--admin_port and --{flag} are both {self.admin.admin_port}; give the admin "
                    "port a number of its own"
                )
        _check_range("max_num_load_retries", self.max_num_load_retries, 0, 2**31 - 1)
        _check_range("rest_api_timeout_in_ms", self.rest_api_timeout_in_ms, 1, 2**31 - 1)
        _check_range("num_load_threads", self.num_load_threads, 0, 2**31 - 1)
        _check_range("num_unload_threads", self.num_unload_threads, 0, 2**31 - 1)
        _check_range("per_process_gpu_memory_fraction", self.per_process_gpu_memory_fraction, 0, 1)
        if (
            self.tensorflow_session_parallelism
            and self.tensorflow_intra_op_parallelism
            and self.tensorflow_inter_op_parallelism
        ):
            raise InvalidArgumentError(
                "Either configure server_options.tensorflow_session_parallelism or "
                "(server_options.tensorflow_intra_op_parallelism, "
                "server_options.tensorflow_inter_op_parallelism) separately. "
                "You cannot configure all."
            )
        batches = self.enable_batching or self.platform_config_file
        if self.batching_parameters_file and not batches:
            raise InvalidArgumentError(
                "server_options.batching_parameters_file is set without setting "
                "server_options.enable_batching to true."
            )


def _check_range(flag: str, value: float, least: float, greatest: float) -> None:
    if not least <= value <= greatest:
        raise InvalidArgumentError(
            f"--{flag} {value} is out of range; give a number from {least} to {greatest}"
        )
