"""A TCP port, bound before anything slow begins."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import Any

from hotrow.errors import UnavailableError


def take_port(port: int, flag: str) -> socket.socket:
    """Returns a socket bound to a port of every interface; it does not listen yet.

    Args:
        port: its number.
        flag: the flag that names it, for the message.

    Raises:
        UnavailableError: the port is taken or not allowed.
    """
    try:
        # IPv6 and IPv4, or IPv4 alone.
        if socket.has_dualstack_ipv6():
            return _bound(socket.AF_INET6, ("::", port))
        return _bound(socket.AF_INET, ("0.0.0.0", port))
    except OSError as err:
        raise _refused(f"{flag} {port}", err) from err


def take_port_of(host: str, port: int, flag: str) -> list[socket.socket]:
    """Returns sockets bound to a port of each address of a host; they do not listen yet.

    Args:
        host: a name or an address; "" stands for every interface.
        port: as for `take_port`.
        flag: as for `take_port`.

    Raises:
        UnavailableError: the host has no address here, or as for `take_port`.
    """
    if not host:
        return [take_port(port, flag)]
    with contextlib.ExitStack() as bound:
        sockets = []
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for family, _, _, _, address in found:
                taken = _bound_if_there(family, address)
                if taken is not None:
                    sockets.append(bound.enter_context(taken))
            if not sockets:
                raise OSError(errno.EADDRNOTAVAIL, f"{host} is no address of this machine")
        except OSError as err:
            raise _refused(f"{flag} {port} of {host}", err) from err
        bound.pop_all()
        return sockets


def _bound_if_there(family: int, address: Any) -> socket.socket | None:
    """Returns a bound socket; None: this machine has no such address, as ::1 without IPv6."""
    try:
        return _bound(family, address)
    except OSError as err:
        if err.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise


def _bound(family: int, address: Any) -> socket.socket:
    # The protocol must be given: otherwise asyncio does not set TCP_NODELAY, and a reply's body
    # waits 40 ms for the client to acknowledge its headers.
    taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # With an address of its own, IPv4 has a socket of its own.
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        taken.bind(address)
    except OSError:
        taken.close()
        raise
    return taken


def _refused(what: str, err: OSError) -> UnavailableError:
    return UnavailableError(f"{what} cannot be used: {err.strerror}; choose another port")
