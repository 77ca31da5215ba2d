"""Addresses of the form `host:port`."""

from __future__ import annotations

import pytest

from hotrow.admin.address import join_address, split_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:8600", ("localhost", 8600)),
        ("10.0.0.7:0", ("10.0.0.7", 0)),
        ("[::1]:65535", ("::1", 65535)),
        (":8600", ("", 8600)),
    ],
)
def test_an_address_is_split_and_joined(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address
    assert join_address(*address) == text


@pytest.mark.parametrize(
    "text", ["", "localhost", "localhost:", "a:b", "::1:80", "a:65536", "http://a:80", "runs/a:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no HOST:PORT"):
        split_address(text)
