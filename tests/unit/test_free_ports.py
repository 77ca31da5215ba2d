"""Ports for the servers of tests."""

from __future__ import annotations

import socket

import pytest
from free_ports import free_port


def test_no_port_is_given_twice_and_each_can_be_listened_on() -> None:
    ports = [free_port() for _ in range(500)]
    assert len(set(ports)) == 500
    for port in ports:
        with socket.create_server(("0.0.0.0", port)):
            pass


def test_a_port_that_somebody_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("free_ports._PORTS", range(port - 5, port + 6))
        given = {free_port() for _ in range(3)}
    assert port not in given
