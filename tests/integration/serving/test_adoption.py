"""Servables of a dead control process are freed, even those that routes lead to."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from logged_lines import logged_lines

from hotrow.protos import control_pb2
from hotrow.serving.data_plane.control_socket import ask
from hotrow.serving.data_plane.data_plane import DataPlane
from hotrow.serving.data_plane.server_process import start_server
from hotrow.serving.data_plane.supervisor import Supervision
from hotrow.serving.wire.status import RequestError

WAIT_SECONDS = 60.0


@pytest.fixture
def left(tmp_path: Path, zoo_dir: Path) -> Iterator[Supervision]:
    """An executable with two versions of a model, both routed to, whose control process is dead."""
    reading, writing = os.pipe()
    socket = tmp_path / "control"
    process = start_server(socket, tmp_path / "greetings", reading)
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            ask(socket, control_pb2.Request(describe=control_pb2.DescribeRequest()))
            break
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.01)
    for number in (1, 2):
        load = control_pb2.LoadRequest(
            model="m", version=number, path=str(zoo_dir / "1"), tags=["serve"], servable=number
        )
        ask(socket, control_pb2.Request(load=load))
    ask(socket, control_pb2.Request(set_routes=routes(1, 2)))
    yield Supervision(tmp_path, reading)
    process.kill()
    os.close(writing)
    os.close(reading)


def routes(*servables: int) -> control_pb2.Routes:
    table = control_pb2.Routes()
    if servables:
        model = table.models.add(name="m")
        for number in servables:
            model.versions.add(version=number, servable=number)
    return table


def request_of(zoo_dir: Path, version: int) -> control_pb2.LoadRequest:
    return control_pb2.LoadRequest(
        model="m", version=version, path=str(zoo_dir / "1"), tags=["serve"]
    )


def test_a_servable_that_is_routed_to_from_before_is_freed_when_routes_are_those_of_now(
    left: Supervision, zoo_dir: Path
) -> None:
    with logged_lines() as lines:
        plane = DataPlane(left)
        plane.wait_until_started()
        for version in (1, 2):
            assert plane.adopt(request_of(zoo_dir, version), lambda err: None) is not None
        plane.unload(1)  # as when it fails for another reason: routes of before lead to it
        described = ask(
            left.folder / "control", control_pb2.Request(describe=control_pb2.DescribeRequest())
        ).describe
        assert {entry.load.servable for entry in described.servables} == {1, 2}
        plane.set_routes(routes(2))
        plane.begin()
        described = ask(
            left.folder / "control", control_pb2.Request(describe=control_pb2.DescribeRequest())
        ).describe
        assert {entry.load.servable for entry in described.servables} == {2}
        with pytest.raises(RequestError, match="routes lead to servable 2"):
            plane.unload(2)
        plane.stop(1.0)
    assert lines == []
