"""What was removed from Redis Streams unread is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from event_runs import config, event, reading
from integration.online.redis_events import add, error_of, url_of
from redis_servers.standalone import RedisServer
from waiting import wait_until

from hotrow.errors import (
    DataLossError,
)


@pytest.mark.parametrize("how", ["XTRIM", "XDEL", "DEL", "DEL and add"])
@pytest.mark.parametrize("runs", [True, False], ids=["report", "fail"])
def test_entries_that_were_removed_unread_are_noticed(
    redis_server: RedisServer, tmp_path: Path, how: str, runs: bool
) -> None:
    call = redis_server.call
    add(call, "clicks", *map(event, range(10)))
    run = config(url_of(redis_server, "clicks"), batch_size=5)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(10)
        positions = [batch.position for batch in reader.batches]
    ids = [entry[0] for entry in call("XRANGE", "clicks", "-", "+")]
    what = {
        "XTRIM": "3 entries were trimmed before being read, behind",
        "XDEL": "entries were removed by XDEL before they were read, behind",
        "DEL": "",
        "DEL and add": "the stream was deleted and is a new one",
    }[how]
    left = {"XTRIM": [8, 9], "XDEL": [5, 7, 8, 9], "DEL": [], "DEL and add": [10]}[how]
    if how == "XTRIM":
        call("XTRIM", "clicks", "MAXLEN", 2)
    elif how == "XDEL":
        call("XDEL", "clicks", ids[6])
    else:
        call("DEL", "clicks")
        if how == "DEL and add":
            add(call, "clicks", event(10))
    if not what:
        with reading(run, tmp_path / "dead", positions[0]) as reader:
            assert reader.stream.next(0.1).rows.num_rows == 0
        return
    if not runs:
        with reading(run, tmp_path / "dead", positions[0]) as reader:
            error = error_of(reader)
        assert isinstance(error, DataLossError)
        assert what in str(error)
        assert "add gaps=report to the URL" in str(error)
        return
    reports: list[str] = []
    run = config(url_of(redis_server, "clicks", more="&gaps=report"), batch_size=5)
    with reading(run, tmp_path / "dead", positions[0], reports) as reader:
        assert reader.read(len(left)) == left
        add(call, "clicks", event(11))
        assert reader.read(len(left) + 1) == [*left, 11]
        reader.stream.next(0.1)
    assert len(reports) == 1
    assert what in reports[0]
    with reading(run, tmp_path / "dead", reader.batches[-1].position) as reader:
        add(call, "clicks", event(12))
        assert reader.read(1) == [12]


def test_entries_may_be_trimmed_when_they_were_read(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    call = redis_server.call
    add(call, "clicks", *map(event, range(10)))
    call("XTRIM", "clicks", "MAXLEN", 8)  # before the first start
    call("XDEL", "clicks", call("XRANGE", "clicks", "-", "+")[3][0])
    every = [2, 3, 4, 6, 7, 8, 9]
    run = config(url_of(redis_server, "clicks"), batch_size=2)
    with reading(run, tmp_path / "dead") as reader:
        assert reader.read(7) == every
        call("XTRIM", "clicks", "MAXLEN", 3)
        add(call, "clicks", event(10))
        assert reader.read(8) == [*every, 10]
        call("XTRIM", "clicks", "MAXLEN", 0)
        add(call, "clicks", event(11))
        assert reader.read(9) == [*every, 10, 11]
        call("XDEL", "clicks", call("XRANGE", "clicks", "-", "+")[0][0])
        add(call, "clicks", event(12))
        assert reader.read(10) == [*every, 10, 11, 12]
        positions = [batch.position for batch in reader.batches]
    with reading(run, tmp_path / "dead", positions[-1]) as reader:
        add(call, "clicks", event(13))
        assert reader.read(1) == [13]


def test_all_unread_entries_may_be_gone(redis_server: RedisServer, tmp_path: Path) -> None:
    call = redis_server.call
    add(call, "clicks", *map(event, range(4)))
    run = config(url_of(redis_server, "clicks", more="&gaps=report"), batch_size=2)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(4)
        position = reader.batches[0].position
    call("XTRIM", "clicks", "MAXLEN", 0)
    reports: list[str] = []
    with reading(run, tmp_path / "dead", position, reports) as reader:
        assert reader.stream.next(0.2).rows.num_rows == 0
        add(call, "clicks", event(4), event(5))
        assert reader.read(2) == [4, 5]
    assert len(reports) == 1
    assert "2 entries were trimmed" in reports[0]


def test_a_stream_that_is_older_than_the_position_is_reported(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    call = redis_server.call
    add(call, "clicks", *map(event, range(4)))
    run = config(url_of(redis_server, "clicks"), batch_size=2)
    reports: list[str] = []
    with reading(run, tmp_path / "dead", reports=reports) as reader:
        reader.read(4)
        ids = [entry[0] for entry in call("XRANGE", "clicks", "-", "+")]
        call("DEL", "clicks")
        add(call, "clicks", *map(event, range(3)), identity="5-*")
        wait_until(lambda: reader.stream.next(0.05).rows.num_rows == 0 and bool(reports))
        add(call, "clicks", event(4))
        assert reader.read(5) == [0, 1, 2, 3, 4]
    assert len(reports) == 1
    assert f"has no entries up to {ids[3].decode()}, which was read" in reports[0]
