"""Native reads from a Redis Cluster: redirections, slots on their way, nodes that are gone."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest
import redis
from native_readers import native_readers
from rows_in_redis import RowsInRedis, topology_of, topology_of_one, write_to_cluster

from hotrow import _native

UNAVAILABLE, FAILED_PRECONDITION, DATA_LOSS = 14, 9, 15


@pytest.fixture
def stored(redis_cluster):
    rows = RowsInRedis([16, 3])
    write_to_cluster(rows, redis_cluster)
    return rows


def moved_by(nodes, by):
    """Returns a topology in which each node has the slots of another."""
    topology = json.loads(nodes)
    slots = [node["slots"] for node in topology["nodes"]]
    for i, node in enumerate(topology["nodes"]):
        node["slots"] = slots[(i + by) % len(slots)]
    return json.dumps(topology)


def test_every_key_reads_as_it_lies_in_the_cluster(stored, redis_cluster):
    reader = native_readers().RedisReader(stored.record, topology_of(redis_cluster))
    for seed in range(10):
        stored.check_all_read(reader, seed)
    counters = reader.statistics()
    assert counters["moved"] == counters["keys_failed"] == 0
    assert len(counters["nodes"]) == 3
    assert all(node["connects"] == 1 for node in counters["nodes"].values())


def test_an_old_map_of_slots_costs_one_redirection_a_shard(stored, redis_cluster):
    reader = native_readers().RedisReader(stored.record, moved_by(topology_of(redis_cluster), 1))
    stored.check_all_read(reader)
    moved = reader.statistics()["moved"]
    assert moved == stored.shards
    for seed in range(5):
        stored.check_all_read(reader, seed)
    assert reader.statistics()["moved"] == moved


def test_a_map_that_lacks_slots_fails_their_keys_alone(stored, redis_cluster):
    topology = json.loads(topology_of(redis_cluster))
    lost = topology["nodes"][0].pop("slots")
    topology["nodes"][0]["slots"] = []
    reader = native_readers().RedisReader(stored.record, json.dumps(topology))
    requests = stored.asked()
    answers, code, message = reader.read(requests, 2.0)
    assert code == UNAVAILABLE
    assert "no node of the Redis Cluster has slot" in message
    for (_, keys), (_, _, states) in zip(requests, answers, strict=True):
        shards = _native.page_of_keys(keys, stored.shards, stored.pages)[0]
        is_lost = [
            any(first <= stored.slots[s] <= last for first, last in lost) for s in shards.tolist()
        ]
        np.testing.assert_array_equal(states == 2, is_lost)
    stored.check(requests, answers, allowed_failures=len(states) * 2)


def test_a_node_of_a_cluster_is_no_store_of_its_own(stored, redis_cluster):
    address = redis_cluster.nodes[0].address
    reader = native_readers().RedisReader(stored.record, topology_of_one(address))
    answers, code, message = reader.read(stored.asked(), 2.0)
    assert code == FAILED_PRECONDITION
    assert "the store's URL must say so" in message
    assert set(answers[0][2].tolist()) == {2}


def test_keys_of_a_slot_on_its_way_are_read_from_where_they_are(redis_servers):
    cluster = redis_servers.cluster(replicas=False)
    # Pages 30 a shard and 500 rows: some are absent, on both sides.
    stored = RowsInRedis([4], count=500, pages=30)
    write_to_cluster(stored, cluster)
    reader = native_readers().RedisReader(stored.record, topology_of(cluster))
    stored.check_all_read(reader)
    slot = stored.slots[5]
    source = cluster.primary_of(slot)
    target = next(node for node in cluster.primaries() if node is not source)
    cluster.call(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.identity(source))
    cluster.call(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.identity(target))
    names = cluster.call(source, "CLUSTER", "GETKEYSINSLOT", slot, 1000)
    assert len(names) > 10
    everything = [(0, np.concatenate([stored.keys[0], np.arange(2000)]))]
    for name in [None, *names]:
        if name is not None:
            host, port = target.address.split(":")
            cluster.call(source, "MIGRATE", host, port, name, 0, 5000)
        answers, code, message = reader.read(everything, 5.0)
        assert (code, message) == (0, "")
        stored.check(everything, answers)
    counters = reader.statistics()
    assert counters["asked"] > len(names)
    assert counters["retried"] == 0
    for node in (target, source):
        cluster.call(node, "CLUSTER", "SETSLOT", slot, "NODE", cluster.identity(target))
    stored.check_all_read(reader)
    assert reader.statistics()["moved"] == 1


def test_no_key_fails_while_slots_move_to_another_node(redis_servers):
    cluster = redis_servers.cluster(replicas=False)
    stored = RowsInRedis([16], shards=256, pages=3)
    write_to_cluster(stored, cluster)
    reader = native_readers().RedisReader(stored.record, topology_of(cluster))
    ends, errors, reads = threading.Event(), [], [0]

    def read_on():
        try:
            while not ends.is_set():
                stored.check_all_read(reader, reads[0])
                reads[0] += 1
        except AssertionError as error:
            errors.append(error)

    thread = threading.Thread(target=read_on)
    thread.start()
    source, target = cluster.primaries()[:2]
    cluster.move_slots(1500, source, target)
    ends.set()
    thread.join()
    assert errors == []
    assert reads[0] > 0
    counters = reader.statistics()
    # How many of the moves a read meets depends on the machine.
    assert counters["moved"] > 0
    assert counters["keys_failed"] == 0


def test_a_node_that_is_gone_fails_its_keys_alone_until_its_replica_serves(redis_servers):
    cluster = redis_servers.cluster()
    stored = RowsInRedis([16])
    write_to_cluster(stored, cluster)
    for node, first, last in cluster.slot_ranges():
        shard = next(s for s, slot in enumerate(stored.slots) if first <= slot <= last)
        with redis.Redis("127.0.0.1", node.port) as client:
            client.hset(stored.markers[shard], "replicated", 1)
            assert client.wait(1, 5000) == 1
    reader = native_readers().RedisReader(stored.record, topology_of(cluster))
    stored.check_all_read(reader)
    killed = cluster.primaries()[0]
    held = [(first, last) for node, first, last in cluster.slot_ranges() if node is killed]
    cluster.kill_primary(0)
    requests = stored.asked()
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        start = time.perf_counter()
        answers, code, message = reader.read(requests, 1.0)
        assert time.perf_counter() - start < 0.5
        assert code == UNAVAILABLE
        assert killed.address in message
        states, keys = answers[0][2], requests[0][1]
        shards = _native.page_of_keys(keys, stored.shards, stored.pages)[0]
        is_held = [
            any(first <= stored.slots[s] <= last for first, last in held) for s in shards.tolist()
        ]
        np.testing.assert_array_equal(states == 2, is_held)
        stored.check(requests, answers, allowed_failures=len(keys))
    assert reader.statistics()["nodes"][killed.address]["breaker"] != "closed"
    cluster.wait_healthy()
    reader.set_topology(topology_of(cluster))
    stored.check_all_read(reader)
    assert killed.address not in reader.statistics()["nodes"]


def test_a_cluster_that_was_flushed_fails_all_keys(stored, redis_cluster):
    reader = native_readers().RedisReader(stored.record, topology_of(redis_cluster))
    stored.check_all_read(reader)
    redis_cluster.flush()
    answers, code, _ = reader.read(stored.asked(), 2.0)
    assert code == DATA_LOSS
    assert {state for _, _, states in answers for state in states.tolist()} == {2}
