"""Calls that may end the executable are made once: the caller decides when to repeat them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotrow.protos import control_pb2
from hotrow.serving.data_plane.control_socket import ask
from hotrow.serving.data_plane.data_plane import DataPlane
from hotrow.serving.data_plane.executable import ServerEndedError
from hotrow.serving.data_plane.supervisor import Supervision
from hotrow.serving.wire.status import RequestError

WAIT_SECONDS = 60.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[DataPlane]:
    """An executable without versions."""
    reading, writing = os.pipe()
    made = DataPlane(Supervision(tmp_path, reading))
    made.wait_until_started()
    yield made
    made.stop(1.0)
    os.close(writing)
    os.close(reading)


def never(error: RequestError) -> None:
    raise AssertionError(error)


def test_a_load_that_the_executable_ends_in_is_not_asked_for_again(
    plane: DataPlane, zoo_dir: Path
) -> None:
    request = control_pb2.LoadRequest(model="m", path=str(zoo_dir / "1"), tags=["serve"])
    first = plane.load_once(request, never)
    describe = control_pb2.Request(describe=control_pb2.DescribeRequest())
    pid = ask(plane.folder / "control", describe).describe.process_id
    os.kill(pid, signal.SIGSTOP)
    ended: list[ServerEndedError] = []

    def load() -> None:
        with pytest.raises(ServerEndedError) as error:
            plane.load_once(request, never)
        ended.append(error.value)

    thread = threading.Thread(target=load)
    thread.start()
    time.sleep(0.5)  # until it is asked for
    os.kill(pid, signal.SIGKILL)
    thread.join(WAIT_SECONDS)
    assert len(ended) == 1
    again = plane.load(request, never)  # waits until it has started again
    described = ask(plane.folder / "control", describe).describe
    assert described.process_id != pid
    assert {entry.load.servable for entry in described.servables} == {first, again}
    assert plane.loaded().keys() == {first, again}
