"""Nodes that die, slots that move: nothing that was acknowledged last is wrong in the end."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from integration.store.random_generations import (
    digests_of,
    new_generation,
    random_rows,
    versions,
    written,
)
from integration.store.trained_states import assert_folded, export, full_export, seen, state

from hotrow.store.access import StoreAccess
from hotrow.store.redis.functions import LIBRARY
from hotrow.store.redis.layout import markers_of


@pytest.fixture(scope="module")
def cluster(module_redis_servers: Any) -> Any:
    return module_redis_servers.cluster()


@pytest.fixture
def healthy(cluster: Any) -> Any:
    """The cluster with all its servers; what died in the test before is back."""
    for node in cluster.nodes:
        if node.process.poll() is not None:
            node.restart()
    cluster.wait_healthy()
    cluster.flush()
    return cluster


def make_right(store: Any, generation: Any, keys: np.ndarray, rows: np.ndarray) -> None:
    """Does what an export does at its end, and checks that it suffices."""
    expected = digests_of(keys, rows)
    wrong = np.flatnonzero((store.digests(generation, 0) != expected).any(axis=1)).tolist()
    store.write(generation, 0, keys, rows, wrong)
    assert (store.digests(generation, 0) == expected).all()


def test_a_cluster_is_used_by_all_its_primaries(healthy: Any, open_redis: Any) -> None:
    store = open_redis(healthy.url)
    written(store, rows=20_000)
    sizes = [healthy.call(node, "DBSIZE") for node in healthy.primaries()]
    assert min(sizes) > 0.8 * max(sizes)
    topology = store.topology()
    assert topology["cluster"] is True
    assert {node["address"] for node in topology["nodes"]} == {
        node.address for node in healthy.primaries()
    }
    slots = sorted(range_ for node in topology["nodes"] for range_ in node["slots"])
    assert slots == [[0, 5460], [5461, 10921], [10922, 16383]]


def test_statistics_show_the_memory_of_a_row_and_the_balance(healthy: Any, open_redis: Any) -> None:
    store = open_redis(healthy.url)
    generation, keys, _ = written(store, rows=30_000)
    statistics = store.statistics(generation)
    assert [node.shards for node in statistics.nodes] in ([5, 6, 5], [6, 5, 5], [5, 5, 6])
    assert {node.address for node in statistics.nodes} == {n.address for n in healthy.primaries()}
    assert all(node.used_bytes > 1e6 and node.limit_bytes is None for node in statistics.nodes)
    (table,) = statistics.tables
    assert table.name == "t0"
    assert 85 < table.bytes_a_row < 115
    store.delete_rows(generation)
    assert store.statistics(generation).tables[0].bytes_a_row is None
    assert store.read(generation, 0, keys[:0])[2].tolist() == []


def test_one_node_of_the_url_is_enough(healthy: Any, open_redis: Any) -> None:
    store = open_redis(f"redis+cluster://127.0.0.1:1,{healthy.nodes[4].address}")
    generation, keys, _ = written(store)
    assert store.read(generation, 0, keys)[2].all()


def test_writes_while_slots_move_back_and_forth_lose_nothing(healthy: Any, open_redis: Any) -> None:
    store = open_redis(healthy.url)
    generation = new_generation(store, rows=30_000)
    keys, rows = random_rows(30_000)
    # Keys of the slots on the move are there, and some are not, so each way of ASK comes up.
    store.write(generation, 0, keys, rows)
    store.set_markers(generation, [digests_of(keys, rows)])
    failures: list[BaseException] = []
    done = threading.Event()

    def move() -> None:
        try:
            one, two, _ = healthy.primaries()
            for _ in range(2):
                healthy.move_slots(600, one, two)
                healthy.move_slots(600, two, one)
        except BaseException as err:
            failures.append(err)
        finally:
            done.set()

    mover = threading.Thread(target=move)
    mover.start()
    version, rounds = generation.row_version, 0
    random = np.random.default_rng(1)
    while not done.is_set():
        store.write(generation, 0, keys, rows)
        pick = random.permutation(len(keys))[:3000]
        rows[pick] = random.integers(0, 256, (3000, 64), dtype=np.uint8)
        version += 1
        assert store.put(generation, 0, keys[pick], rows[pick], versions(3000, version)) <= 3000
        assert store.missing_markers(generation) == []
        assert store.read(generation, 0, keys[:200])[2].all()
        rounds += 1
    mover.join()
    assert failures == []
    assert rounds > 3
    make_right(store, generation, keys, rows)
    assert (store.read(generation, 0, keys)[0] == rows).all()
    store.delete_rows(generation)
    assert sum(healthy.call(node, "DBSIZE") for node in healthy.primaries()) == 1


def test_a_slot_that_stays_between_two_nodes_is_written_and_read(
    healthy: Any, open_redis: Any
) -> None:
    """A move that was broken off: no MSET or MGET of several keys passes, so one by one."""
    store = open_redis(healthy.url)
    generation = new_generation(store, rows=5000)
    keys, rows = random_rows(5000)
    store.write(generation, 0, keys, rows)
    store.set_markers(generation, [digests_of(keys, rows)])
    names, slots = markers_of(generation)
    source = healthy.primary_of(slots[0])
    target = next(node for node in healthy.primaries() if node is not source)
    healthy.call(target, "CLUSTER", "SETSLOT", slots[0], "IMPORTING", healthy.identity(source))
    healthy.call(source, "CLUSTER", "SETSLOT", slots[0], "MIGRATING", healthy.identity(target))
    here = healthy.call(source, "CLUSTER", "GETKEYSINSLOT", slots[0], 1000)
    half = [key for key in here[::2] if key != names[0]]
    healthy.call(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *half)
    try:
        assert (store.digests(generation, 0) == digests_of(keys, rows)).all()
        rows = rows[::-1].copy()
        store.write(generation, 0, keys, rows)
        assert (store.digests(generation, 0) == digests_of(keys, rows)).all()
        assert (store.read(generation, 0, keys)[0] == rows).all()
        store.delete_rows(generation)
        assert not store.digests(generation, 0).any()
    finally:
        for node in (source, target):
            healthy.call(node, "CLUSTER", "SETSLOT", slots[0], "STABLE")


def test_an_export_goes_on_when_a_primary_dies_and_its_functions_are_there_after_it(
    healthy: Any, open_redis: Any
) -> None:
    store = open_redis(healthy.url)
    generation = new_generation(store, rows=30_000)
    keys, rows = random_rows(30_000)
    store.write(generation, 0, keys, rows)
    store.set_markers(generation, [digests_of(keys, rows)])
    _, slots = markers_of(generation)
    victim = healthy.primary_of(slots[1])
    # As on a replica that joined when nothing was loaded yet.
    for node in healthy.primaries():
        healthy.call(node, "FUNCTION", "FLUSH")
    killer = threading.Timer(0.3, victim.kill)
    killer.start()
    for _ in range(8):
        store.write(generation, 0, keys, rows)
    killer.join()
    assert victim.process.poll() is not None
    store.write(generation, 0, keys, rows)
    make_right(store, generation, keys, rows)
    store.set_markers(generation, [digests_of(keys, rows)])
    new = healthy.primary_of(slots[1])
    assert new is not victim
    assert healthy.call(new, "FUNCTION", "LIST") == []
    version = versions(len(keys), 2**60)
    assert store.put(generation, 0, keys, rows[::-1].copy(), version) == len(keys)
    assert LIBRARY in str(healthy.call(new, "FUNCTION", "LIST"))
    assert (store.read(generation, 0, keys)[0] == rows[::-1]).all()
    assert {node["address"] for node in store.topology()["nodes"]} == {
        node.address for node in healthy.primaries()
    }


def test_changes_arrive_bit_for_bit_when_a_primary_dies_between_them(
    healthy: Any, open_redis: Any
) -> None:
    store = open_redis(healthy.url)
    generation = full_export(store)
    _, slots = markers_of(generation)
    victim = healthy.primary_of(slots[1])
    for number in range(1, 7):
        export(store, generation, state(number), lock_seconds=60.0)
        assert seen(store, generation) == (state(number)[0], number)
        if number == 3:
            # A failover loses what no replica has; then a full export is asked for.
            for primary in healthy.primaries():
                assert healthy.call(primary, "WAIT", 1, 5000) == 1
            victim.kill()
    export(store, generation, state(number + 1), lock_seconds=60.0)
    assert_folded(store, generation, state(number + 1))
    assert healthy.primary_of(slots[1]) is not victim


def test_records_outlive_the_node_that_holds_them(healthy: Any, open_redis: Any) -> None:
    records = open_redis(healthy.url).records
    assert records.swap("a", None, "1")
    number = records.next_number()
    slot = healthy.call(healthy.nodes[0], "CLUSTER", "KEYSLOT", "hotrow:{hr}")
    holder = healthy.primary_of(slot)
    assert healthy.call(holder, "WAIT", 1, 5000) == 1
    holder.kill()
    assert records.swap("a", "1", "2")
    assert records.get("a") == "2"
    assert records.next_number() > number


def test_a_frozen_node_is_left_for_the_one_that_takes_over(
    healthy: Any, open_redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotrow.store.redis.connections.ANSWER_SECONDS", 1.0)
    store = open_redis(healthy.url)
    generation, keys, rows = written(store)
    _, slots = markers_of(generation)
    victim = healthy.primary_of(slots[1])
    healthy.call(victim, "WAIT", 1, 5000)
    victim.freeze()
    try:
        store.write(generation, 0, keys, rows)
        make_right(store, generation, keys, rows)
        assert store.read(generation, 0, keys)[2].all()
    finally:
        victim.thaw()


@pytest.mark.slow
def test_sentinels_lead_to_the_primary_that_takes_over(redis_servers: Any, open_redis: Any) -> None:
    sentinel = redis_servers.sentinel(password="sesame")
    store = open_redis(sentinel.url, StoreAccess(password="sesame"), 30.0)
    generation, keys, rows = written(store)
    old = sentinel.primary()
    (node,) = store.topology()["nodes"]
    assert node == {"address": old.address, "slots": [[0, 16383]]}
    assert sentinel.call(old, "WAIT", 1, 5000) == 1
    old.kill()
    newer = versions(len(keys), 2**60)
    assert store.put(generation, 0, keys, rows[::-1].copy(), newer) == len(keys)
    assert sentinel.primary() is not old
    (node,) = store.topology()["nodes"]
    assert node["address"] == sentinel.primary().address
    make_right(store, generation, keys, rows[::-1].copy())
    # The old primary comes back, and takes nothing for an answer until it is a replica.
    old.restart()
    assert store.records.swap("a", None, "1")
    assert (store.read(generation, 0, keys)[0] == rows[::-1]).all()
