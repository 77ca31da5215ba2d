"""Ports for the servers of tests."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

import free_ports
import pytest
from free_ports import free_port

TESTS = Path(free_ports.__file__).parent
# Prints ports, which its process holds until its input ends.
HOLDER = """
import json, sys
from free_ports import free_port
print(json.dumps([free_port() for _ in range(100)]), flush=True)
sys.stdin.read()
"""


def test_no_port_is_given_twice_and_each_can_be_listened_on() -> None:
    ports = [free_port() for _ in range(500)]
    assert len(set(ports)) == 500
    for port in ports:
        with socket.create_server(("0.0.0.0", port)):
            pass


def test_a_port_in_use_is_not_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("free_ports._PORTS", range(port - 5, port + 6))
        monkeypatch.setattr("free_ports._LOCKS", tmp_path)
        monkeypatch.setattr("free_ports._left", [])
        given = {free_port() for _ in range(3)}
    assert port not in given


def test_processes_share_no_port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(_holder()) for _ in range(4)]
        for holder in holders:
            assert holder.stdout is not None
            ports += json.loads(holder.stdout.readline())
        assert len(set(ports)) == 400

        (locks,) = tmp_path.iterdir()
        monkeypatch.setattr("free_ports._LOCKS", locks)
        first = min(ports) - min(ports) % 64
        monkeypatch.setattr("free_ports._PORTS", range(first, first + 64))
        monkeypatch.setattr("free_ports._left", [])
        with pytest.raises(RuntimeError, match="other processes hold all ports"):
            free_port()
        for holder in holders:
            holder.communicate()
    assert free_port() in range(first, first + 64)


def _holder() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER]
    return subprocess.Popen(
        command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
