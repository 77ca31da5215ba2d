"""Native reads from a Redis that hangs, dies or refuses: deadlines hold, and no key is unknown."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
from integration.store.native_reads import all_states, reader_of, started, timed_read
from native_readers import native_readers
from rows_in_redis import RowsInRedis, topology_of_one
from waiting import wait_until

UNAVAILABLE, PERMISSION_DENIED, DATA_LOSS = 14, 7, 15


@pytest.fixture
def stored(redis_server):
    """Rows of two tables in the shared server."""
    rows = RowsInRedis([16, 3])
    with redis_server.client() as client:
        rows.write(lambda slot: client)
    return rows


def test_a_frozen_server_keeps_the_deadline_opens_the_breaker_and_recovers(redis_servers):
    server, stored = started(redis_servers)
    reader = reader_of(stored, server)
    stored.check_all_read(reader)
    requests = stored.asked()
    server.freeze()
    try:
        times = []
        for _ in range(5):
            answers, code, message, spent = timed_read(reader, requests, 0.05)
            assert code == UNAVAILABLE
            assert server.address in message
            assert all_states(answers) == {2}
            times.append(spent)
        # At times another program has the processor.
        assert 0.049 < min(times) < 0.055
        assert max(times) < 0.5
        (node,) = reader.statistics()["nodes"].values()
        assert node["breaker"] == "open"
        *_, code, message, spent = timed_read(reader, requests, 0.05)
        assert code == UNAVAILABLE
        assert spent < 0.045
        # A long deadline is cut by the breaker, too.
        for _ in range(10):
            *_, spent = timed_read(reader, requests, 10.0)
            assert spent < 1.0
    finally:
        server.thaw()
    wait_until(lambda: reader.read(requests, 1.0)[1] == 0)
    (node,) = reader.statistics()["nodes"].values()
    assert node["breaker"] == "closed"
    stored.check_all_read(reader)


def test_a_silent_server_is_left_within_a_second_whatever_the_deadline(redis_servers):
    server, stored = started(redis_servers)
    reader = reader_of(stored, server)
    stored.check_all_read(reader)
    server.freeze()
    try:
        *_, code, _, spent = timed_read(reader, stored.asked(), 30.0)
        assert code == UNAVAILABLE
        assert 0.7 < spent < 1.2
        (node,) = reader.statistics()["nodes"].values()
        assert node["breaker"] == "open"
    finally:
        server.thaw()


def test_a_server_that_is_killed_fails_and_one_that_is_back_without_rows_too(redis_servers):
    server, stored = started(redis_servers)
    reader = reader_of(stored, server)
    stored.check_all_read(reader)
    server.kill()
    requests = stored.asked()
    answers, code, message, spent = timed_read(reader, requests, 5.0)
    assert code == UNAVAILABLE
    assert "refused" in message
    assert all_states(answers) == {2}
    assert spent < 0.5
    server.restart()
    wait_until(lambda: reader.read(requests, 1.0)[1] == DATA_LOSS)
    with server.client() as client:
        stored.write(lambda slot: client)
    stored.check_all_read(reader)


def test_a_restart_between_reads_costs_one_more_connection_and_no_key(redis_servers):
    server, stored = started(redis_servers)
    reader = reader_of(stored, server)
    stored.check_all_read(reader)
    server.stop()
    server.restart()
    with server.client() as client:
        stored.write(lambda slot: client)
    stored.check_all_read(reader)
    counters = reader.statistics()
    assert counters["reconnects"] == 1
    assert counters["keys_failed"] == 0


def test_connections_that_the_server_closes_are_made_again(stored, redis_server):
    reader = reader_of(stored, redis_server)
    for _ in range(5):
        stored.check_all_read(reader)
        redis_server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert reader.statistics()["reconnects"] == 4


@pytest.mark.parametrize("unix_socket", [False, True], ids=["tcp", "unix"])
def test_passwords_and_databases_are_used(redis_servers, unix_socket):
    server = redis_servers.standalone(
        password="secret", users=["eve on >word ~* +mget +exists +select"], unix_socket=unix_socket
    )
    stored = RowsInRedis([4])
    with server.client(database=3) as client:
        stored.write(lambda slot: client)
    stored.check_all_read(reader_of(stored, server, password="secret", database=3))
    stored.check_all_read(reader_of(stored, server, username="eve", password="word", database=3))
    requests = stored.asked()
    for access, words in (
        ({}, "NOAUTH"),
        ({"password": "wrong"}, "WRONGPASS"),
        ({"username": "eve", "password": "wrong"}, "WRONGPASS"),
    ):
        reader = reader_of(stored, server, database=3, **access)
        for _ in range(3):
            answers, code, message = reader.read(requests, 2.0)
            assert code == PERMISSION_DENIED
            assert words in message
            assert "wrong" not in message
            assert all_states(answers) == {2}
    answers, code, message = reader_of(stored, server, password="secret", database=99).read(
        requests, 2.0
    )
    assert code == UNAVAILABLE
    assert "out of range" in message


def test_a_user_without_the_commands_is_reported_so(redis_servers):
    server, stored = started(redis_servers, password="secret", users=["eve on >word ~* +get"])
    reader = reader_of(stored, server, username="eve", password="word")
    answers, code, message = reader.read(stored.asked(), 2.0)
    assert code == PERMISSION_DENIED
    assert "NOPERM" in message
    assert all_states(answers) == {2}


def test_a_server_that_loads_is_waited_for_until_the_deadline(stored):
    answers = [b"-LOADING Redis is loading the dataset in memory\r\n"] * 3
    with _Scripted(lambda: answers.pop() if answers else b"-ERR unknown command\r\n") as server:
        reader = native_readers().RedisReader(stored.record, topology_of_one(server.address))
        _, code, message, spent = timed_read(reader, [(0, stored.keys[0][:1])], 2.0)
        assert "unknown command" in message
        assert spent < 1.0
        assert reader.statistics()["retried"] == 3
    with _Scripted(lambda: b"-LOADING Redis is loading\r\n") as server:
        reader = native_readers().RedisReader(stored.record, topology_of_one(server.address))
        _, code, message, spent = timed_read(reader, [(0, stored.keys[0][:1])], 0.5)
        assert code == UNAVAILABLE
        assert "LOADING" in message
        assert 0.45 < spent < 2.5


def test_a_server_that_drips_and_one_that_accepts_nobody_keep_the_deadline(stored):
    def drip():
        time.sleep(0.02)
        return b"*"  # never the end of a line

    with _Scripted(drip, forever=True) as server:
        _check_deadline(stored, server.address)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        others = [socket.socket() for _ in range(4)]
        for other in others:
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        address = "{}:{}".format(*full.getsockname())
        _check_deadline(stored, address)
        for other in others:
            other.close()


def _check_deadline(stored, address):
    """Checks that reads from a node that never answers end when they must."""
    times = []
    for _ in range(5):
        reader = native_readers().RedisReader(stored.record, topology_of_one(address))
        *_, code, _, spent = timed_read(reader, [(0, stored.keys[0][:1])], 0.1)
        assert code == UNAVAILABLE
        times.append(spent)
    # At times another program has the processor.
    assert 0.099 < min(times) < 0.105
    assert max(times) < 0.5


class _Scripted:
    """A server whose every answer a function returns."""

    def __init__(self, answer, forever=False):
        self._answer, self._forever = answer, forever
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._client: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        if self._client is not None:
            with contextlib.suppress(OSError):
                self._client.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self):
        try:
            while True:
                self._client = self._listener.accept()[0]
                self._talk(self._client)
        except OSError:
            return

    def _talk(self, client):
        with client:
            try:
                while client.recv(1 << 16):
                    client.sendall(self._answer())
                    while self._forever:
                        client.sendall(self._answer())
            except OSError:
                return
