"""This machine's address as others in a store's network have it."""

from __future__ import annotations

import socket
from pathlib import Path

from hotrow.store.own_host import own_host
from hotrow.store.url import parse_store_url


def _own(url: str) -> str:
    return own_host(parse_store_url("--store", url))


def test_it_is_the_address_from_which_the_store_is_reached(tmp_path: Path) -> None:
    assert _own("redis://127.0.0.1:6379") == "127.0.0.1"
    assert _own("redis+cluster://host.invalid:1,127.0.0.1:2") == "127.0.0.1"
    assert _own("redis://host.invalid") == socket.gethostname()
    assert _own(f"file://{tmp_path}") == "localhost"


def test_an_address_of_ipv6_is_in_brackets() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("::1", 1))
        except OSError:
            return  # this machine has no IPv6: there is no such address
    assert _own("redis://[::1]:6379") == "[::1]"
