"""Connections of the admin port whose clients do not read."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotrow.admin import admin_port
from hotrow.admin.admin_port import AdminPort
from hotrow.admin.metrics_request import MetricsPage

# More than the buffers of a connection hold.
PAGE = "x" * (32 << 20)
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """An admin port that waits 0.2 s for a client to read."""
    monkeypatch.setattr(admin_port, "_END_SECONDS", 0.2)
    taken = socket.create_server(("127.0.0.1", 0))
    address = taken.getsockname()
    page = MetricsPage("/metrics", lambda: PAGE, lambda authorization: True, "Nothing")
    port = AdminPort([taken], None, str(tmp_path / "grpc"), page)
    yield address
    port.stop()


def test_a_client_that_reads_gets_the_whole_page(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=30.0) as client:
        client.sendall(REQUEST)
        received = bytearray()
        while piece := client.recv(1 << 20):
            received += piece
    assert received.endswith(b"\r\n\r\n" + PAGE.encode())


def test_the_connection_of_a_client_that_does_not_read_ends(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=30.0) as client:
        client.sendall(REQUEST)
        # The end of the connection is seen without a read of its data.
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while True:
                client.sendall(b"more")
                time.sleep(0.01)
