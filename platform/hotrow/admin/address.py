"""Addresses of the form `host:port`."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]/\s]*):(?P<port>[0-9]{1,5})")
_MOST_PORT = 65535

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that only this machine reaches."""


def split_address(text: str) -> tuple[str, int]:
    """Returns host and port of `host:port` or `[IPv6]:port`; the host may be "".

    Raises:
        ValueError: it is no such address; the message goes on from the text's name.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _MOST_PORT:
        raise ValueError("is no HOST:PORT; give a host and a port up to 65535, or [IPv6]:PORT")
    return found["host"].strip("[]"), int(found["port"])


def join_address(host: str, port: int) -> str:
    """Returns `host:port`, or `[host]:port` for an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
