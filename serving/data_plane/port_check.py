"""Whether a port can be listened on, before anything slow begins."""

from __future__ import annotations

import socket

from hotrow.errors import UnavailableError

_HOST = "0.0.0.0"


def check_port_is_free(port: int, flag: str) -> None:
    """Refuses a port that cannot be listened on, before anything slow begins.

    Raises:
        UnavailableError: the port is taken or not allowed.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
            probe.listen(1)
        except OSError as err:
            raise UnavailableError(
                f"{flag} {port} cannot be used: {err.strerror}; choose another port"
            ) from err
