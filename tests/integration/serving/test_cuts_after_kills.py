"""Processes of a server that die while it follows cuts: none is seen in part or forgotten."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.serving.cut_servers import CACHE, KILLS, private_folder
from integration.serving.marked_rows import (
    MarkedModel,
    cut_of,
    marked_load,
    wait_until_answered,
)
from integration.serving.server_processes import control_of, data_plane_of
from tensorflow.core.protobuf import config_pb2
from waiting import wait_until

from hotrow.protos import control_pb2
from hotrow.serving.data_plane.control_socket import ask as ask_executable


@pytest.fixture
def model_in(tmp_path: Path) -> Iterator[Callable[[str], MarkedModel]]:
    """Exports a marked model with its rows in the store of a URL."""
    made: list[MarkedModel] = []

    def make(url: str) -> MarkedModel:
        made.append(MarkedModel(tmp_path / "models", url))
        return made[-1]

    yield make
    for model in made:
        model.close()


@pytest.fixture
def model(redis_server: Any, model_in: Any) -> MarkedModel:
    """A marked model with its rows in a Redis."""
    made: MarkedModel = model_in(redis_server.url)
    return made


@pytest.mark.parametrize("last", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_an_executable_that_is_killed_begins_with_what_was_shown(
    last: int, model: MarkedModel, start_server: Any
) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    cut = model.write(1)
    model.wait_until_noted(cut)
    with marked_load(server) as load:
        for number in range(2, last + 1):
            os.kill(data_plane_of(server), signal.SIGKILL)
            if number == 3:  # else it takes the cut while it starts
                wait_until(lambda: server.log.count("hotrow-server serves again") == 2)
                wait_until_answered(server)
                assert cut_of(server) == 2
            cut = model.write(number)
            load.wait_for(number)
            model.wait_until_noted(cut)
            if number == 2:
                model.fold()
        os.kill(data_plane_of(server), signal.SIGKILL)
        wait_until(lambda: server.log.count("hotrow-server serves again") == last)
        wait_until_answered(server)
        assert cut_of(server) == last
    assert all(failure.startswith("UNAVAILABLE") for failure in load.failures())


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_an_executable_that_is_killed_in_the_midst_of_cuts_shows_none_of_them_in_part(
    kills: int, model: MarkedModel, start_server: Any
) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    with marked_load(server) as load:
        for number in range(1, kills + 1):
            cut = model.write(number)
            time.sleep(0.04 * number)  # a take lasts some hundredths
            os.kill(data_plane_of(server), signal.SIGKILL)
            wait_until(lambda n=number: server.log.count("hotrow-server serves again") == n)
            model.wait_until_noted(cut)
            if number % 3 == 0:
                model.fold()
        load.wait_for(kills)
    assert all(failure.startswith("UNAVAILABLE") for failure in load.failures())
    wait_until_answered(server)
    assert cut_of(server) == kills


@pytest.mark.parametrize(
    "moment",
    [pytest.param("between cuts", marks=pytest.mark.slow), "in the midst of cuts"],
)
def test_a_control_process_that_is_killed_fails_no_request_and_forgets_no_cut(
    moment: str, model: MarkedModel, start_server: Any
) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    with marked_load(server) as load:
        for number in range(1, KILLS + 1):
            cut = model.write(number)
            if moment == "between cuts":
                load.wait_for(number)
            else:
                time.sleep(0.03 * number)
            os.kill(control_of(server), signal.SIGKILL)
            wait_until(lambda n=number: server.log.count("the control process serves again") == n)
            load.wait_for(number)
            # Until it has ended, the lease of the one that was killed is there, too.
            wait_until(lambda v=cut.version: v in model.noted())
        assert cut_of(server) == KILLS
        last = model.write(KILLS + 1)
        load.wait_for(KILLS + 1)
        wait_until(lambda: last.version in model.noted())
        model.fold()  # as an exporter does when the leases of those that were killed have ended
        time.sleep(1.0)
    assert load.failures() == []
    assert load.cuts() == set(range(KILLS + 2))
    shows = [line for line in server.log if f"(cut {last.version:016x}" in line]
    # None, if the one before came less than 10 s earlier.
    assert len(shows) <= 1, server.log


def test_a_second_session_that_a_dead_control_process_asked_for_is_used(
    model: MarkedModel, start_server: Any
) -> None:
    server = start_server("m", model.path, *CACHE)
    server.wait_ready()
    # As it asks for it, without having seen the answer.
    socket = private_folder(server) / "control"
    describe = control_pb2.Request(describe=control_pb2.DescribeRequest())
    (first,) = ask_executable(socket, describe).describe.servables
    second = first.load
    second.servable, second.shares = 999, first.load.servable
    config = config_pb2.ConfigProto.FromString(second.session_config)
    second.session = config.experimental.session_metadata.name = "m\x01second"
    second.session_config = config.SerializeToString()
    ask_executable(socket, control_pb2.Request(load=second))
    with marked_load(server) as load:
        for number in (1, 2):
            model.wait_until_noted(model.write(number))
            load.wait_for(number)
    assert load.failures() == []
    assert load.cuts() == {0, 1, 2}
    described = ask_executable(socket, describe).describe
    assert 999 in {entry.load.servable for entry in described.servables}
    assert len(described.servables) == 2
