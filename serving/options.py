"""Options of a serving process: the flags of tensorflow_model_server that are built, and ours."""

from __future__ import annotations

from dataclasses import dataclass

from hotrow.errors import InvalidArgumentError
from hotrow.store_url import check_store_url


@dataclass(frozen=True)
class ServeOptions:
    """What `platform serve` serves, where and how; names and defaults are TF Serving's.

    Attributes:
        model_name: what requests call the model.
        model_base_path: directory of the numbered version directories.
        port: TCP port of gRPC.
        rest_api_port: TCP port of REST; 0 means no REST.
        rest_api_num_threads: None means 4 for each CPU.
        rest_api_timeout_in_ms: longest run of a model for a REST request.
        rest_api_enable_cors_support: whether browsers may read REST replies.
        grpc_max_threads: gRPC requests answered at a time, more are refused; None means 1024
            (TF Serving: 4 for each CPU, so that a burst of short requests is refused).
        file_system_poll_wait_seconds: time between looks for versions; 0 looks once.
        max_num_load_retries: further attempts after the first failed load of a version.
        load_retry_interval_micros: time between two attempts.
        saved_model_tags: tags of the graph to load.
        intra_op_threads: 0 lets TensorFlow choose.
        inter_op_threads: 0 lets TensorFlow choose.
        store: URL of the rows of our exports; "" means the store in the version's manifest.
        drain_seconds: how long running requests may take to end after SIGTERM.
    """

    model_name: str = "default"
    model_base_path: str = ""
    port: int = 8500
    rest_api_port: int = 0
    rest_api_num_threads: int | None = None
    rest_api_timeout_in_ms: int = 30_000
    rest_api_enable_cors_support: bool = False
    grpc_max_threads: int | None = None
    file_system_poll_wait_seconds: float = 1.0
    max_num_load_retries: int = 5
    load_retry_interval_micros: int = 60_000_000
    saved_model_tags: tuple[str, ...] = ("serve",)
    intra_op_threads: int = 0
    inter_op_threads: int = 0
    store: str = ""
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Refuses values that cannot be served.

        Raises:
            InvalidArgumentError: names the flag, the value and what is allowed.
        """
        if not self.model_base_path:
            raise InvalidArgumentError(
                "--model_base_path is empty; give the directory that holds the numbered version "
                "directories"
            )
        if not self.model_name:
            raise InvalidArgumentError("--model_name is empty; give the name requests will use")
        if self.store:
            check_store_url("--store", self.store)
        _check_range("port", self.port, 1, 65535)
        _check_range("rest_api_port", self.rest_api_port, 0, 65535)
        if self.port == self.rest_api_port:
            raise InvalidArgumentError(
                f"--port and --rest_api_port are both {self.port}; gRPC and REST need a port each"
            )
        if self.file_system_poll_wait_seconds < 0:
            raise InvalidArgumentError(
                f"--file_system_poll_wait_seconds {self.file_system_poll_wait_seconds:g} is "
                "negative; give the seconds between two looks, or 0 to look once"
            )
        _check_range("max_num_load_retries", self.max_num_load_retries, 0, 2**31 - 1)
        _check_range("load_retry_interval_micros", self.load_retry_interval_micros, 0, 2**63 - 1)
        _check_range("rest_api_timeout_in_ms", self.rest_api_timeout_in_ms, 1, 2**31 - 1)


def _check_range(flag: str, value: int, least: int, greatest: int) -> None:
    if not least <= value <= greatest:
        raise InvalidArgumentError(
            f"--{flag} {value} is out of range; give a number from {least} to {greatest}"
        )
