"""Native reads from one Redis: exact rows, and failures that never look like unknown keys."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time

import numpy as np
import pytest
from rows_in_redis import TOMBSTONE, VERSION, RowsInRedis, topology_of_one
from waiting import wait_until

from hotrow import _native
from hotrow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError

UNAVAILABLE, PERMISSION_DENIED, DATA_LOSS = 14, 7, 15


@pytest.fixture
def stored(redis_server):
    """Rows of two tables in the shared server."""
    rows = RowsInRedis([16, 3])
    with redis_server.client() as client:
        rows.write(lambda slot: client)
    return rows


def reader_of(stored, server, **access):
    address = server.address if server.socket is None else f"unix:{server.socket}"
    return _native.RedisReader(stored.record, topology_of_one(address), **access)


def started(redis_servers, **options):
    """Returns (server, its rows): a server of one test alone."""
    server = redis_servers.standalone(**options)
    rows = RowsInRedis([16])
    with server.client() as client:
        rows.write(lambda slot: client)
    return server, rows


def timed_read(reader, requests, timeout_seconds):
    start = time.perf_counter()
    answers, code, message = reader.read(requests, timeout_seconds)
    return answers, code, message, time.perf_counter() - start


def all_states(answers):
    return set(np.concatenate([states for _, _, states in answers]).tolist())


def test_every_key_reads_as_it_lies_in_the_store(stored, redis_server):
    reader = reader_of(stored, redis_server)
    assert [table[:4] for table in reader.tables] == [
        ("t0", 16, "float32", 64),
        ("t1", 3, "float32", 12),
    ]
    for seed in range(20):
        stored.check_all_read(reader, seed)
    everything = list(enumerate(stored.keys))
    answers, code, _ = reader.read(everything, 10.0)
    assert code == 0
    assert all_states(answers) == {1}
    stored.check(everything, answers)
    counters = reader.statistics()
    assert counters["reads"] == 21
    assert counters["keys_found"] == 20 * 1000 + sum(map(len, stored.keys))
    assert counters["keys_unknown"] == 20 * 200
    assert counters["keys_failed"] == 0
    (node,) = counters["nodes"].values()
    assert node["breaker"] == "closed"
    assert node["connects"] == node["idle_connections"] == 1
    assert sum(counters["read_times"]) == 21


def test_no_keys_and_few_keys_are_read_too(stored, redis_server):
    reader = reader_of(stored, redis_server)
    assert reader.read([], 1.0) == ([], 0, "")
    none = np.empty(0, np.int64)
    answers, code, _ = reader.read([(0, none), (1, stored.keys[1][:1])], 1.0)
    assert code == 0
    assert answers[0][0].shape == (0, 64)
    stored.check([(0, none), (1, stored.keys[1][:1])], answers)
    with pytest.raises(IndexError):
        reader.read([(2, none)], 1.0)


def test_a_tombstone_is_an_unknown_key_with_its_version(stored, redis_server):
    key = int(stored.keys[0][0])
    with redis_server.client() as client:
        name = stored.page_name(0, key)
        page = client.get(name)
        at = page.index(struct.pack("<q", key))
        client.setrange(name, at + 8, struct.pack("<Q", TOMBSTONE | 99) + bytes(64))
    ((_, versions, states),), code, _ = reader_of(stored, redis_server).read(
        [(0, stored.keys[0][:2])], 1.0
    )
    assert code == 0
    assert states.tolist() == [0, 1]
    assert versions.tolist() == [TOMBSTONE | 99, VERSION]


def test_a_page_that_is_no_whole_number_of_records_fails_its_keys_alone(stored, redis_server):
    keys = stored.keys[0][:200]
    name = stored.page_name(0, int(keys[0]))
    with redis_server.client() as client:
        client.append(name, b"x")
    ((rows, versions, states),), code, message = reader_of(stored, redis_server).read(
        [(0, keys)], 1.0
    )
    assert code == DATA_LOSS
    assert name.decode() in message
    assert states[0] == 2
    assert (states == 1).sum() > 150
    stored.check([(0, keys)], [(rows, versions, states)], allowed_failures=50)


@pytest.mark.parametrize("command", [("FLUSHALL",), ("DEL",)], ids=["flush", "markers"])
def test_rows_that_were_lost_fail_and_are_not_unknown(stored, redis_server, command):
    reader = reader_of(stored, redis_server)
    stored.check_all_read(reader)
    if command == ("FLUSHALL",):
        redis_server.call("FLUSHALL")
    else:
        redis_server.call("DEL", *stored.markers)
    requests = [(0, np.arange(500) * 7919)]
    with redis_server.client() as client:
        for name in _native.page_names(stored.shards, stored.number, 0, stored.pages, 3):
            client.delete(name)
    answers, code, message = reader.read(requests, 1.0)
    assert code == DATA_LOSS
    assert "generation abab" in message
    assert "export the model again" in message
    lost = stored.page_name, _native.page_of_keys(requests[0][1], stored.shards, stored.pages)[0]
    states = answers[0][2]
    assert set(states[lost[1] == 3].tolist()) == {2}
    assert set(states.tolist()) == ({2} if command == ("FLUSHALL",) else {0, 2})


def test_a_page_that_is_absent_beside_its_marker_has_no_keys(stored, redis_server):
    reader = reader_of(stored, redis_server)
    absent = RowsInRedis([16], count=1, number=4, seed=9)
    with redis_server.client() as client:
        absent.write(lambda slot: client)
    empty = _native.RedisReader(absent.record, topology_of_one(redis_server.address))
    answers, code, message = empty.read([(0, stored.keys[0][:300])], 1.0)
    assert (code, message) == (0, "")
    assert all_states(answers) == {0}
    assert 1 <= empty.statistics()["markers"] <= 16
    stored.check_all_read(reader)


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
        reader = _native.RedisReader(stored.record, topology_of_one(server.address))
        _, code, message, spent = timed_read(reader, [(0, stored.keys[0][:1])], 2.0)
        assert "unknown command" in message
        assert spent < 1.0
        assert reader.statistics()["retried"] == 3
    with _Scripted(lambda: b"-LOADING Redis is loading\r\n") as server:
        reader = _native.RedisReader(stored.record, topology_of_one(server.address))
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


def test_hosts_have_names_and_unknown_ones_fail(stored, redis_server):
    reader = _native.RedisReader(stored.record, topology_of_one(f"localhost:{redis_server.port}"))
    stored.check_all_read(reader)
    reader = _native.RedisReader(stored.record, topology_of_one("no-such-host.invalid:6379"))
    *_, code, message, spent = timed_read(reader, stored.asked(), 2.0)
    assert code == UNAVAILABLE
    assert "no-such-host.invalid" in message
    assert spent < 1.5


def test_another_topology_is_taken_while_threads_read(redis_servers):
    first, stored = started(redis_servers)
    second = redis_servers.standalone()
    with second.client() as client:
        stored.write(lambda slot: client)
    reader = reader_of(stored, first)
    ends, errors = threading.Event(), []

    def read_on(seed):
        try:
            while not ends.is_set():
                stored.check_all_read(reader, seed)
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=read_on, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for i in range(20):
        server = (second, first)[i % 2]
        reader.set_topology(topology_of_one(server.address))
        time.sleep(0.02)
    reader.set_topology(topology_of_one(second.address))
    time.sleep(0.2)
    first.kill()
    time.sleep(0.2)
    ends.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert list(reader.statistics()["nodes"]) == [second.address]


def test_what_no_reader_can_be_made_of_is_refused(stored, redis_server):
    good = topology_of_one(redis_server.address)
    record = json.loads(stored.record)
    with pytest.raises(DataLossError):
        _native.RedisReader("{", good)
    with pytest.raises(FailedPreconditionError, match="no pages"):
        tables = [record["tables"][0] | {"pages": 0}]
        _native.RedisReader(json.dumps(record | {"tables": tables}), good)
    for topology, words in (
        ("{", "JSON"),
        ('{"cluster": false, "nodes": []}', "0 nodes"),
        (topology_of_one("nowhere"), "host:port and unix:/path"),
        (topology_of_one("a:0"), "host:port"),
        (topology_of_one("unix:"), "path of a socket"),
        ('{"cluster": true, "nodes": [{"address": "a:1", "slots": [[5, 99999]]}]}', "99999"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            _native.RedisReader(stored.record, topology)
    for access in ({"most_reads": 0}, {"database": -1}, {"connect_seconds": 0.0}):
        with pytest.raises(InvalidArgumentError, match=next(iter(access))):
            _native.RedisReader(stored.record, good, **access)
    reader = _native.RedisReader(stored.record, good)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.statistics()


def _check_deadline(stored, address):
    """Checks that reads from a node that never answers end when they must."""
    times = []
    for _ in range(5):
        reader = _native.RedisReader(stored.record, topology_of_one(address))
        *_, code, _, spent = timed_read(reader, [(0, stored.keys[0][:1])], 0.1)
        assert code == UNAVAILABLE
        times.append(spent)
    # At times another program has the processor.
    assert 0.099 < min(times) < 0.105
    assert max(times) < 0.5


class _Scripted:
    """A server that answers everything with what a function says."""

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
