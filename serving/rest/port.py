"""The REST port, bound before anything slow begins."""

from __future__ import annotations

import socket

from hotrow.errors import UnavailableError


def take_port(port: int) -> socket.socket:
    """Returns a socket bound to a TCP port of every interface; it does not listen yet.

    Raises:
        UnavailableError: the port is taken or not allowed.
    """
    try:
        return _bound_socket(port)
    except OSError as err:
        raise UnavailableError(
            f"--rest_api_port {port} cannot be used: {err.strerror}; choose another port"
        ) from err


def _bound_socket(port: int) -> socket.socket:
    """Returns a socket at a port of every interface: IPv6 and IPv4, or IPv4 alone."""
    if socket.has_dualstack_ipv6():
        return _bound(socket.AF_INET6, "::", port)
    return _bound(socket.AF_INET, "0.0.0.0", port)


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    # The protocol must be given: otherwise asyncio does not set TCP_NODELAY, and a reply's body
    # waits 40 ms for the client to acknowledge its headers.
    taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        taken.bind((host, port))
    except OSError:
        taken.close()
        raise
    return taken
