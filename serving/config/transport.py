"""How clients reach the server besides its two ports: the files that flags name, and a socket."""

from __future__ import annotations

import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotrow.errors import InvalidArgumentError, UnavailableError
from hotrow.protos import control_pb2
from hotrow.serving.config.tls_message import tls_message
from hotrow.serving.config.transport_options import TransportOptions, parse_channel_arguments
from hotrow.tls import Tls, read_tls

# Size of a Unix socket's address (sun_path), including the terminating zero byte.
_LONGEST_PATH_BYTES = 107


@dataclass(frozen=True)
class Transport:
    """`TransportOptions` with its files read.

    Attributes:
        options: as given.
        tls: of the gRPC port.
        rest_tls: of the REST port.
    """

    options: TransportOptions
    tls: Tls | None
    rest_tls: Tls | None

    @staticmethod
    def read(options: TransportOptions) -> Transport:
        """Reads the files.

        Raises:
            HotrowError: a file cannot be used.
        """
        rest_file = options.rest_api_ssl_config_file
        return Transport(
            options,
            read_tls("--ssl_config_file", options.ssl_config_file)
            if options.ssl_config_file
            else None,
            read_tls("--rest_api_ssl_config_file", rest_file) if rest_file else None,
        )

    def check_socket(self) -> None:
        """Refuses a socket that cannot be listened on, before anything slow begins.

        Raises:
            HotrowError: its path cannot be used, or another process listens there.
        """
        if self.options.grpc_socket_path:
            check_socket_is_free(self.options.grpc_socket_path)

    def listen_fields(self) -> dict[str, Any]:
        """Returns the fields of ListenRequest that these settings determine."""
        options = self.options
        path = options.grpc_socket_path
        return {
            "socket_paths": [path] if path else [],
            "tls": tls_message(self.tls),
            "channel_arguments": [
                control_pb2.ListenRequest.ChannelArgument(key=key, value=value)
                for key, value in parse_channel_arguments(options.grpc_channel_arguments)
            ],
            "health": options.enable_grpc_healthcheck_service,
            "reflection": options.enable_grpc_reflection,
            "tensor_content": options.enable_serialization_as_tensor_content,
            "check_method_name": options.enable_signature_method_name_check,
        }


def check_socket_is_free(path: str) -> None:
    """Refuses a path that cannot become a socket; a socket left by a dead process is no obstacle.

    Raises:
        InvalidArgumentError: it is too long, or names a file that is not a socket.
        UnavailableError: its directory is missing, or a process listens there.
    """
    if len(path.encode()) > _LONGEST_PATH_BYTES:
        raise InvalidArgumentError(
            f"--grpc_socket_path {path} has {len(path.encode())} bytes; at most "
            f"{_LONGEST_PATH_BYTES} are allowed, and a relative path may be shorter"
        )
    if not Path(path).parent.is_dir():
        raise UnavailableError(
            f"--grpc_socket_path {path} cannot be used: there is no directory "
            f"{Path(path).parent}; make it"
        )
    if not Path(path).exists():
        return
    if not stat.S_ISSOCK(Path(path).stat().st_mode):
        raise InvalidArgumentError(
            f"--grpc_socket_path {path} is something else than a socket; choose another path"
        )
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(path) == 0:
            raise UnavailableError(
                f"--grpc_socket_path {path} cannot be used: another process listens there; choose "
                "another path"
            )
