"""Whether a port can be listened on, before anything slow begins."""

from __future__ import annotations

import socket

from hotrow.errors import UnavailableError


def check_port_is_free(port: int, flag: str, *, ipv6: bool = False) -> None:
    """Refuses a port that cannot be listened on, before anything slow begins.

    Args:
        port: its number.
        flag: the flag that names it, for the message.
        ipv6: whether it must be free for IPv6, too, where the machine has it.

    Raises:
        UnavailableError: the port is taken or not allowed.
    """
    both = ipv6 and socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if both:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("::" if both else "0.0.0.0", port))
            probe.listen(1)
        except OSError as err:
            raise UnavailableError(
                f"{flag} {port} cannot be used: {err.strerror}; choose another port"
            ) from err
