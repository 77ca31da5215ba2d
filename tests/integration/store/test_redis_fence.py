"""Rows of shards that went back in time fail; the others are read, at the cost of before."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from integration.store.native_reads import all_states, reader_of, started
from native_readers import native_readers
from rows_in_redis import VERSION, RowsInRedis, topology_of, write_to_cluster
from waiting import wait_until

from hotrow import _native

UNAVAILABLE, DATA_LOSS = 14, 15


@pytest.fixture
def redis_and_rows(redis_servers):
    return started(redis_servers)


def set_marks(server, stored, version, shards=None):
    with server.client() as client:
        set_marks_of(client, stored, range(stored.shards) if shards is None else shards, version)


def set_marks_of(client, stored, shards, version):
    for shard in shards:
        client.hset(stored.markers[shard], "wm", struct.pack("<Q", version))


def take_over(cluster, replica):
    """Lets a replica become the primary at once."""
    cluster.call(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
    wait_until(lambda: replica in cluster.primaries())
    cluster.wait_healthy()


def test_watermarks_are_read_once_over_a_connection(redis_and_rows):
    server, stored = redis_and_rows
    reader = reader_of(stored, server)

    def commands():
        (node,) = reader.statistics()["nodes"].values()
        return node["commands"]

    stored.check_all_read(reader, 0)
    assert commands() == 1
    reader.set_fence(VERSION)
    stored.check_all_read(reader, 1)
    assert commands() == 2 + stored.shards
    for seed in range(2, 6):
        stored.check_all_read(reader, seed)
    assert commands() == 6 + stored.shards
    set_marks(server, stored, VERSION + 1)
    reader.set_fence(VERSION + 1)
    stored.check_all_read(reader, 6)
    assert commands() == 7 + 2 * stored.shards


def test_rows_of_shards_that_are_behind_fail_and_those_of_others_do_not(redis_and_rows):
    server, stored = redis_and_rows
    reader = reader_of(stored, server)
    set_marks(server, stored, VERSION + 1, range(8))
    reader.set_fence(VERSION + 1)
    requests = stored.asked()
    answers, code, message = reader.read(requests, 10.0)
    assert code == UNAVAILABLE
    assert "the store went back in time" in message
    failed = stored.check(requests, answers, allowed_failures=len(requests[0][1]))
    assert 0 < failed < len(requests[0][1])
    set_marks(server, stored, VERSION + 1)
    stored.check_all_read(reader)


def test_a_server_that_is_started_again_with_an_earlier_state_is_noticed_by_the_first_read(
    redis_and_rows,
):
    server, stored = redis_and_rows
    snapshot = server.snapshot()
    set_marks(server, stored, VERSION + 1)
    reader = reader_of(stored, server)
    reader.set_fence(VERSION + 1)
    stored.check_all_read(reader)
    server.go_back(snapshot)
    everything = list(enumerate(stored.keys))
    answers, code, message = reader.read(everything, 10.0)
    assert (all_states(answers), code) == ({2}, UNAVAILABLE)
    assert "went back in time" in message
    reader.set_fence(VERSION)
    stored.check_all_read(reader)


def test_a_node_that_followed_one_which_was_behind_is_noticed_when_it_takes_over_again(
    redis_servers,
):
    """Its connections live on, and watermarks that were read over them do not hold any more."""
    cluster = redis_servers.cluster()
    stored = RowsInRedis([16])
    write_to_cluster(stored, cluster)
    own = {
        node: [s for s, slot in enumerate(stored.slots) if first <= slot <= last]
        for node, first, last in cluster.slot_ranges()
    }
    node, replica = cluster.nodes[0], cluster.nodes[3]

    def set_own_marks(holder, version):
        with cluster.client(holder) as client:
            set_marks_of(client, stored, own[holder], version)
            assert client.wait(1, 5000) == 1

    for primary in own:
        set_own_marks(primary, VERSION + 1)
    reader = native_readers().RedisReader(stored.record, topology_of(cluster))
    reader.set_fence(VERSION + 1)
    stored.check_all_read(reader)
    take_over(cluster, replica)
    stored.check_all_read(reader)
    own[replica] = own[node]
    set_own_marks(replica, VERSION)  # as on one that was behind
    take_over(cluster, node)
    requests = stored.asked()
    answers, code, message = reader.read(requests, 10.0)
    assert code == UNAVAILABLE
    assert "the store went back in time" in message
    keys = requests[0][1]
    shards = _native.page_of_keys(keys, stored.shards, stored.pages)[0]
    np.testing.assert_array_equal(answers[0][2] == 2, np.isin(shards, own[node]))


def test_a_shard_without_its_marker_has_lost_its_rows(redis_and_rows):
    server, stored = redis_and_rows
    reader = reader_of(stored, server)
    reader.set_fence(1)
    with server.client() as client:
        client.delete(*stored.markers)
    answers, code, message = reader.read([(0, stored.keys[0])], 10.0)
    assert (all_states(answers), code) == ({2}, DATA_LOSS)
    assert "the store has lost rows" in message
    assert len(np.concatenate([states for _, _, states in answers])) == len(stored.keys[0])
