"""Native reads from one Redis: exact rows, and failures that never look like unknown keys."""

from __future__ import annotations

import json
import struct
import threading
import time

import numpy as np
import pytest
from integration.store.native_reads import all_states, reader_of, started, timed_read
from native_readers import native_readers
from rows_in_redis import TOMBSTONE, VERSION, RowsInRedis, topology_of_one

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
    empty = native_readers().RedisReader(absent.record, topology_of_one(redis_server.address))
    answers, code, message = empty.read([(0, stored.keys[0][:300])], 1.0)
    assert (code, message) == (0, "")
    assert all_states(answers) == {0}
    assert 1 <= empty.statistics()["markers"] <= 16
    stored.check_all_read(reader)


def test_hosts_have_names_and_unknown_ones_fail(stored, redis_server):
    reader = native_readers().RedisReader(
        stored.record, topology_of_one(f"localhost:{redis_server.port}")
    )
    stored.check_all_read(reader)
    reader = native_readers().RedisReader(
        stored.record, topology_of_one("no-such-host.invalid:6379")
    )
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
        native_readers().RedisReader("{", good)
    with pytest.raises(FailedPreconditionError, match="no pages"):
        tables = [record["tables"][0] | {"pages": 0}]
        native_readers().RedisReader(json.dumps(record | {"tables": tables}), good)
    for topology, words in (
        ("{", "JSON"),
        ('{"cluster": false, "nodes": []}', "0 nodes"),
        (topology_of_one("nowhere"), "host:port and unix:/path"),
        (topology_of_one("a:0"), "host:port"),
        (topology_of_one("unix:"), "path of a socket"),
        ('{"cluster": true, "nodes": [{"address": "a:1", "slots": [[5, 99999]]}]}', "99999"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            native_readers().RedisReader(stored.record, topology)
    for access in ({"most_reads": 0}, {"database": -1}, {"connect_seconds": 0.0}):
        with pytest.raises(InvalidArgumentError, match=next(iter(access))):
            native_readers().RedisReader(stored.record, good, **access)
    reader = native_readers().RedisReader(stored.record, good)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.statistics()
