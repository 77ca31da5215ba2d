"""Redis Streams are read once from any position."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from event_runs import config, event, letters, reading
from integration.online.online_run import Work, click_rows
from integration.online.redis_events import add, error_of, group_lag, text_of, url_of
from redis_servers.cluster import RedisCluster
from redis_servers.fixtures import Servers
from redis_servers.standalone import RedisServer
from redis_servers.tls import access_with
from waiting import wait_until

from hotrow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from hotrow.trainer.online.sources import redis_streams
from hotrow.trainer.online.stream import open_stream


@pytest.mark.parametrize("entries", [1, 3, 2048], ids="{} entries at a time".format)
def test_a_stream_is_read_on_from_behind_any_batch(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    monkeypatch.setattr(redis_streams, "_ENTRIES", entries)
    some: list[Any] = [event(number) for number in range(12)]
    some[5:5] = ["{", '{"click": 9}']
    add(redis_server.call, "clicks", *some, "bad")
    redis_server.call("XADD", "clicks", "*", "evnet", "{}")
    run = config(url_of(redis_server, "clicks"))
    with reading(run, tmp_path / "dead") as whole:
        assert whole.read(12) == list(range(12))
        wait_until(
            lambda: whole.stream.next(0.0).rows.num_rows == 0 and whole.stream.counts()["bad"] == 4
        )
    found = letters(tmp_path / "dead")
    assert [letter.get("event") for letter in found] == ["{", '{"click": 9}', "bad", "evnet {}"]
    assert found[0]["place"]["stream"] == "clicks"
    for cut, batch in enumerate(whole.batches, start=1):
        with reading(run, tmp_path / "dead", batch.position) as rest:
            assert rest.read(12 - 3 * cut) == list(range(3 * cut, 12))
            assert rest.stream.next(0.05).rows.num_rows == 0


def test_several_streams_are_merged_by_time(redis_server: RedisServer, tmp_path: Path) -> None:
    for number in range(20):
        add(redis_server.call, f"clicks:{number % 3}", event(number))
    run = config(url_of(redis_server, "clicks:0", "clicks:1", "clicks:2", "clicks:none"))
    with reading(run, tmp_path / "dead") as whole:
        assert whole.read(20) == list(range(20))
        add(redis_server.call, "clicks:none", event(20))
        assert whole.read(21)[20:] == [20]
    for batch in whole.batches:
        with reading(run, tmp_path / "dead", batch.position) as rest:
            read = whole.items.index(batch.rows["item"][-1].as_py()) + 1
            assert rest.read(21 - read) == list(range(read, 21))


def test_events_come_while_it_waits(redis_server: RedisServer, tmp_path: Path) -> None:
    run = config(url_of(redis_server, "clicks"), max_batch_seconds=0.01)
    with reading(run, tmp_path / "dead") as reader:
        for number in range(5):
            assert reader.stream.next(0.02).rows.num_rows == 0
            add(redis_server.call, "clicks", event(number))
            assert reader.read(number + 1)[-1] == number


def test_without_a_time_column_events_have_the_time_of_their_entry(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    add(redis_server.call, "clicks", event(0), identity="1700000123456-3")
    run = config(url_of(redis_server, "clicks"), time=None, batch_size=1)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(1)
    assert reader.batches[0].newest == 1_700_000_123.456


def test_lines_of_the_data_format(redis_server: RedisServer, tmp_path: Path) -> None:
    add(redis_server.call, "clicks", "1,a,7,0.5,3", "0,b,8,0.5,4")
    columns = ["click", "user", "item", "price", "ts"]
    run = config(url_of(redis_server, "clicks"), format="data", data__columns=columns)
    with reading(run, tmp_path / "dead") as reader:
        assert reader.read(2) == [7, 8]
    bare = config(url_of(redis_server, "clicks"), format="data")
    with pytest.raises(InvalidArgumentError, match=r"data\.columns: the lines of redis://.* have"):
        open_stream(bare, tmp_path / "dead", {}, print)


def test_a_consumer_group_shows_the_lag(redis_server: RedisServer, tmp_path: Path) -> None:
    call = redis_server.call
    add(call, "clicks", *map(event, range(10)))
    run = config(url_of(redis_server, "clicks", more="&group=trainer"), batch_size=4)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(10)
        assert group_lag(call, "clicks", "trainer")["lag"] == 10
        position = reader.batches[0].position
        reader.stream.note_saved(position)
        wait_until(lambda: group_lag(call, "clicks", "trainer")["lag"] == 6)
        wait_until(lambda: reader.stream.lag().events == 0)
        call("XGROUP", "DESTROY", "clicks", "trainer")  # nothing depends on it
        reader.stream.note_saved(position)
        wait_until(lambda: bool(group_lag(call, "clicks", "trainer")))
        last = reader.batches[-1].position
        reader.stream.note_saved(last)
    group = group_lag(call, "clicks", "trainer")
    assert group["lag"] == 0
    assert text_of(group["last-delivered-id"]) == last["source"]["clicks"]["id"]


def test_the_lag_is_the_number_and_age_of_unread_entries(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    add(redis_server.call, "clicks", *map(event, range(5)), identity="1000-*")
    add(redis_server.call, "more", *map(event, range(5, 30)))
    run = config(url_of(redis_server, "clicks", "more"), batch_size=3)
    with reading(run, tmp_path / "dead") as reader:
        wait_until(lambda: reader.stream.lag().events == 30)
        assert (reader.stream.lag().seconds or 0) > 1e9
        reader.read(6)
        wait_until(lambda: reader.stream.lag().events == 30 - len(reader.items))
        wait_until(lambda: 0 <= (reader.stream.lag().seconds or 0) < 100)
        reader.read(30)
        wait_until(lambda: reader.stream.lag().events == 0)
        wait_until(lambda: reader.stream.lag().seconds == 0)


def test_it_goes_on_when_redis_is_back(redis_servers: Servers, tmp_path: Path) -> None:
    server = redis_servers.standalone(settings={"appendonly": "yes", "appendfsync": "always"})
    add(server.call, "clicks", *map(event, range(4)))
    reports: list[str] = []
    run = config(url_of(server, "clicks", more="&group=g"), batch_size=2, max_batch_seconds=0.01)
    with reading(run, tmp_path / "dead", reports=reports) as reader:
        reader.read(4)
        server.kill()
        wait_until(lambda: reader.stream.next(0.05).rows.num_rows == 0 and len(reports) == 1)
        assert "no events while Redis does not answer" in reports[0]
        wait_until(lambda: "is it running" in reader.trouble())
        reader.stream.note_saved(reader.batches[-1].position)
        server.restart()
        add(server.call, "clicks", *map(event, range(4, 8)))
        assert reader.read(8) == list(range(8))
        assert "answers again" in reports[1]
    assert len(reports) == 2


def test_a_source_that_may_be_away_is_awaited(redis_servers: Servers, tmp_path: Path) -> None:
    server = redis_servers.standalone(settings={"appendonly": "yes", "appendfsync": "always"})
    add(server.call, "clicks", *map(event, range(8)))
    run = config(url_of(server, "clicks"), batch_size=2)
    with reading(run, tmp_path / "dead") as reader:
        reader.read(4)
        position = reader.batches[1].position
    server.kill()
    reports: list[str] = []
    with reading(run, tmp_path / "dead", position, reports, may_be_away=True) as reader:
        end = time.monotonic() + 2.5  # it asks each second
        while time.monotonic() < end:
            assert reader.stream.next(0.1).rows.num_rows == 0
        wait_until(lambda: "is it running" in reader.trouble())
        assert len(reports) == 1
        assert "no events until it answers: " in reports[0]
        server.restart()
        assert reader.read(4) == [4, 5, 6, 7]
        wait_until(lambda: not reader.trouble() and reader.stream.lag().events == 0)
    assert reports[1:] == ["online.source answers"]
    server.call("CONFIG", "SET", "requirepass", "secret")
    with pytest.raises(PermissionDeniedError), reading(run, tmp_path / "dead", may_be_away=True):
        pass


def test_a_resumed_run_waits_for_its_source_and_a_new_one_does_not(
    redis_servers: Servers, tmp_path: Path
) -> None:
    server = redis_servers.standalone(settings={"appendonly": "yes", "appendfsync": "always"})
    rows = click_rows(256)
    add(server.call, "clicks", *rows[:128])
    work = Work(tmp_path, "", url_of(server, "clicks"))
    work.configure("  admin: 127.0.0.1:0\n")
    try:
        trainer = work.start()
        wait_until(lambda: work.trained() == 128, work.log, 120)
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(60) == 128 + signal.SIGTERM
        server.kill()
        new = work.start(run="new", log="new.log")
        trainer = work.start("--resume", log="resumed")
        assert new.wait(120) == 1, work.log("new.log")
        assert "is it running" in work.log("new.log").splitlines()[-1]
        work.await_line("no events until it answers: ", "resumed")
        wait_until(lambda: work.metric("source_is_away") == 1, lambda: work.log("resumed"))
        server.restart()
        add(server.call, "clicks", *rows[128:])
        wait_until(lambda: work.trained() == 256, lambda: work.log("resumed"), 60)
        wait_until(lambda: work.metric("source_is_away") == 0)
    finally:
        work.close()


def test_a_cluster_is_read_through_a_failover(redis_servers: Servers, tmp_path: Path) -> None:
    cluster: RedisCluster = redis_servers.cluster()
    streams = [f"clicks:{number}" for number in range(4)]
    clients = {}

    def call(*command: Any) -> Any:
        from redis.crc import key_slot

        node = cluster.primary_of(key_slot(str(command[1]).encode()))
        client = clients.setdefault(node.port, cluster.client(node))
        return client.execute_command(*command)

    more = "&group=trainer"
    run = config(f"{cluster.url}?" + "&".join(f"stream={one}" for one in streams) + more)
    for number in range(20):
        add(call, streams[number % 4], event(number))
    with reading(run, tmp_path / "dead") as reader:
        assert reader.read(20) == list(range(20))
        reader.stream.note_saved(reader.batches[-1].position)
        wait_until(lambda: group_lag(call, streams[0], "trainer").get("lag") == 0)
        for client in clients.values():
            client.execute_command("WAIT", 1, 10_000)
        cluster.kill_primary()
        cluster.wait_healthy()
        for number in range(20, 40):
            add(call, streams[number % 4], event(number))
        assert sorted(reader.read(40)) == list(range(40))
        position = reader.batches[3].position
    with reading(run, tmp_path / "dead", position) as rest:
        assert sorted(rest.read(28)) == list(range(12, 40))
    for client in clients.values():
        client.close()


def test_rows_and_labels_of_several_streams_join_after_a_resume(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    call = redis_server.call
    wait = {"key": "show", "window_seconds": 6.0}
    url = url_of(redis_server, "a", "b", more="&group=g")
    run = config(url, join=wait, batch_size=2, max_batch_seconds=0.01)

    def show(number: int) -> None:
        row = {name: value for name, value in event(number).items() if name != "click"}
        add(call, "ab"[number % 2], row | {"show": number})
        if number % 3 == 2:  # two events after the row that it is of
            label = {"show": number - 2, "click": 1, "ts": event(number)["ts"]}
            add(call, "ab"[number % 2], label)

    with reading(run, tmp_path / "dead") as whole:
        for number in range(40):
            show(number)
            if number % 5 == 4:
                whole.batches.append(whole.stream.next(0.1))
        whole.read(35)  # 33 whose window is over, and two with a label
        first_group = whole.batches[-1].position
        whole.stream.note_saved(first_group)
        # The group stays where the rows that wait are read again.
        again = first_group["join"]["source"]["a"]["id"]
        wait_until(lambda: text_of(group_lag(call, "a", "g")["last-delivered-id"]) == again)
        assert whole.stream.counts()["joined"] == 13
        assert whole.stream.counts()["unmatched"] == 0
    labels = {
        item: label
        for batch in whole.batches
        for item, label in zip(
            batch.rows["item"].to_pylist(), batch.rows["click"].to_pylist(), strict=True
        )
        if batch.rows.num_rows
    }
    assert {item for item, label in labels.items() if label} == set(range(0, 39, 3))
    filled = [batch for batch in whole.batches if batch.rows.num_rows]
    done = 0
    for batch in filled:
        done += batch.rows.num_rows
        with reading(run, tmp_path / "dead", batch.position) as rest:
            items = rest.read(len(labels) - done)[: len(labels) - done]
            assert set(items) == set(whole.items[done:])
            assert sum(one.rows["click"].to_pylist().count(1.0) for one in rest.batches) == sum(
                labels[item] for item in items
            )


def test_tls_and_passwords(redis_servers: Servers, tmp_path: Path) -> None:
    server = redis_servers.standalone(tls=True, tls_clients=True, password="secret")
    add(server.call, "clicks", event(0))
    assert server.certificates is not None
    home = server.certificates.folder
    (tmp_path / "password").write_text("secret\n")
    files = f"&ca={home / 'ca.cert'}&cert={home / 'client.cert'}&key={home / 'client.key'}"
    by_url = config(
        url_of(server, "clicks", more=f"{files}&password_file={tmp_path / 'password'}"),
        batch_size=1,
    )
    with reading(by_url, tmp_path / "dead") as reader:
        assert reader.read(1) == [0]
    plain = config(url_of(server, "clicks"), batch_size=1)
    access = access_with(server.certificates, "secret")
    stream = open_stream(plain, tmp_path / "dead", {}, print, access)
    wait_until(lambda: stream.next(0.1).rows.num_rows == 1)
    stream.close()
    wrong = access_with(server.certificates, "wrong")
    with pytest.raises(PermissionDeniedError, match="refuses the default user"):
        open_stream(plain, tmp_path / "dead", {}, print, wrong)
    missing = config(url_of(server, "clicks", more=f"&ca={tmp_path / 'none'}"))
    with pytest.raises(NotFoundError, match="none: No such file"):
        open_stream(missing, tmp_path / "dead", {}, print)


def test_what_is_no_stream_is_refused(redis_server: RedisServer, tmp_path: Path) -> None:
    redis_server.call("SET", "clicks", "x")
    with reading(config(url_of(redis_server, "clicks")), tmp_path / "dead") as reader:
        error = error_of(reader)
    assert isinstance(error, FailedPreconditionError)
    assert "WRONGTYPE" in str(error)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("", "name each stream once: ?stream=NAME"),
        ("?stream=", "name each stream once"),
        ("?stream=a&stream=a", "name each stream once"),
        ("?steam=a", "unknown parameter 'steam' (did you mean 'stream'?); legal: stream, group"),
        ("?stream=a&gaps=no", "gaps 'no': must be fail or report"),
    ],
)
def test_an_url_that_is_not_legal_is_refused(tmp_path: Path, query: str, error: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        open_stream(config(f"redis://127.0.0.1:1{query}"), tmp_path / "dead", {}, print)
    assert error in str(caught.value)


def test_a_password_in_an_url_is_not_shown(tmp_path: Path) -> None:
    for url in ("redis://u:secret@x?stream=a", "redis://x?stream=a&password=secret"):
        with pytest.raises(InvalidArgumentError) as caught:
            open_stream(config(url), tmp_path / "dead", {}, print)
        assert "secret" not in str(caught.value)


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"redis://127\.0\.0\.1:1: "):
        open_stream(config("redis://127.0.0.1:1?stream=a"), tmp_path / "dead", {}, print)
