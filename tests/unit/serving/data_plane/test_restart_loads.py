"""Loads of a restarted executable: their order, and which of them is the cause of its end."""

from __future__ import annotations

import threading

import pytest

from hotrow.protos import control_pb2
from hotrow.serving.data_plane.load_limits import LoadLimits
from hotrow.serving.data_plane.restart_loads import RestartLoads
from hotrow.serving.wire.status import Code, RequestError

REQUESTS = {
    1: control_pb2.LoadRequest(servable=1),
    2: control_pb2.LoadRequest(servable=2, shares=1),
    3: control_pb2.LoadRequest(servable=3),
}


class Process:
    """Answers loads; ends when one of `lethal` is loaded, with all that are under way."""

    def __init__(self, *lethal: int) -> None:
        self.lethal = lethal
        self.loaded: list[int] = []
        self._both = threading.Barrier(2)

    def ask(self, request: control_pb2.Request) -> control_pb2.Reply:
        number = request.load.servable
        if self.lethal and number in (1, 3):
            # The two are side by side, unless one is repeated alone.
            try:
                self._both.wait(0.2)
                raise ConnectionResetError
            except threading.BrokenBarrierError:
                self._both.reset()
        if number in self.lethal:
            raise ConnectionResetError
        self.loaded.append(number)
        return control_pb2.Reply()


def never(number: int, error: RequestError) -> None:
    raise AssertionError(number)


def test_servables_that_share_tables_come_after_the_first() -> None:
    process = Process()
    RestartLoads(LoadLimits(restart_threads=8)).run(REQUESTS, process.ask, never)
    assert sorted(process.loaded[:2]) == [1, 3]
    assert process.loaded[2:] == [2]


def test_what_is_refused_keeps_no_other_from_loading() -> None:
    refused: dict[int, Code] = {}
    loaded = []

    def ask(request: control_pb2.Request) -> control_pb2.Reply:
        if request.load.servable == 3:
            raise RequestError(Code.NOT_FOUND, "gone")
        loaded.append(request.load.servable)
        return control_pb2.Reply()

    loads = RestartLoads(LoadLimits())
    loads.run(REQUESTS, ask, lambda number, err: refused.update({number: err.code}))
    assert (loaded, refused) == ([1, 2], {3: Code.NOT_FOUND})


def test_of_several_none_is_the_cause_until_it_is_alone() -> None:
    loads = RestartLoads(LoadLimits(restart_threads=2))
    process = Process(3)
    blamed = []
    for _ in range(3):
        with pytest.raises(ConnectionResetError):
            loads.run(REQUESTS, process.ask, never)
        blamed.append(loads.blame())
    assert blamed == [(None, False), (3, False), (3, True)]
    assert 2 not in process.loaded
    loads.forget(3)
    assert loads.blame() == (None, False)
