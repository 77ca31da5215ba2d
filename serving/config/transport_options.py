"""Flags about how clients reach the server besides its two ports."""

from __future__ import annotations

from dataclasses import dataclass

from hotrow.errors import InvalidArgumentError, UnimplementedError


@dataclass(frozen=True)
class TransportOptions:
    """Flags of tensorflow_model_server with its defaults, and ours after them.

    Attributes:
        grpc_socket_path: Unix socket of gRPC, besides the port; "" means none.
        grpc_channel_arguments: `key=value,key=value` for gRPC's server.
        ssl_config_file: text SSLConfig of the gRPC port; "" means no TLS.
        use_alts_credentials: is refused.
        enable_grpc_healthcheck_service: whether grpc.health.v1 answers on the gRPC port.
        enable_grpc_reflection: ours; whether clients may list the services.
        enable_serialization_as_tensor_content: whether outputs use `tensor_content`.
        enable_signature_method_name_check: whether a signature's method name must fit the call.
        monitoring_config_file: text MonitoringConfig; "" means no metrics.
        rest_api_ssl_config_file: text SSLConfig of the REST port; "" means no TLS.
        rest_api_max_body_bytes: longest body of a REST request, uncompressed.
        rest_api_read_timeout_in_ms: time for the headers of a REST request to arrive, and for its
            body; the body gets one second more for each 1000 bytes.
        request_memory_bytes: that all requests under way hold together, over gRPC and REST; None
            means a quarter of the memory that the process may use, and 64 MiB at least.
    """

    grpc_socket_path: str = ""
    grpc_channel_arguments: str = ""
    ssl_config_file: str = ""
    use_alts_credentials: bool = False
    enable_grpc_healthcheck_service: bool = False
    enable_grpc_reflection: bool = False
    enable_serialization_as_tensor_content: bool = False
    enable_signature_method_name_check: bool = False
    monitoring_config_file: str = ""
    rest_api_ssl_config_file: str = ""
    rest_api_max_body_bytes: int = 256 << 20
    rest_api_read_timeout_in_ms: int = 20_000
    request_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuses values that cannot be served.

        Raises:
            InvalidArgumentError: names the flag, the value and what is allowed.
            UnimplementedError: for ALTS.
        """
        if self.use_alts_credentials:
            if self.ssl_config_file:
                raise InvalidArgumentError(
                    "--use_alts_credentials and --ssl_config_file exclude each other; leave one out"
                )
            raise UnimplementedError(
                "--use_alts_credentials=true is not built: ALTS works between machines of Google "
                "Cloud only; use --ssl_config_file"
            )
        parse_channel_arguments(self.grpc_channel_arguments)
        for flag, most in (
            ("rest_api_max_body_bytes", 2**31 - 1),
            ("rest_api_read_timeout_in_ms", 2**31 - 1),
            ("request_memory_bytes", 2**63 - 1),
        ):
            value = getattr(self, flag)
            if value is not None and not 1 <= value <= most:
                raise InvalidArgumentError(
                    f"--{flag} {value} is out of range; give a number from 1 to {most}"
                )


def parse_channel_arguments(text: str) -> list[tuple[str, str]]:
    """Returns the pairs of `key=value,key=value`.

    Raises:
        InvalidArgumentError: a part has no key or no `=`.
    """
    pairs = []
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise InvalidArgumentError(
                f"--grpc_channel_arguments: {part!r} is not of the form key=value; give "
                "key=value,key=value"
            )
        pairs.append((key, value))
    return pairs
