"""The address under which others in a store's network reach this machine."""

from __future__ import annotations

import contextlib
import socket

from hotrow.store.url import StoreUrl


def own_host(url: StoreUrl) -> str:
    """Returns the address of this machine in the network of a store, as a URL has it.

    It is the address from which the store is reached: a name of this machine may be known to it
    alone. A store in files or behind a Unix socket is on this machine: "localhost".
    """
    for host, port in url.hosts:
        with contextlib.suppress(OSError):
            found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            for family, kind, protocol, _, address in found:
                with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as way:
                    way.connect(address)  # of datagrams: nothing is sent
                    own = str(way.getsockname()[0])
                    return f"[{own}]" if ":" in own else own
    return "localhost" if not url.hosts else socket.gethostname()
