"""Generations in one Redis server: written, read back, damaged, deleted."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from integration.store.random_generations import (
    SHARDS,
    digests_of,
    new_generation,
    random_rows,
    versions,
    written,
)

from hotrow.errors import UnavailableError
from hotrow.store.redis.layout import PagedTable, markers_of
from hotrow.store.row_store import DAMAGED_ROWS


@pytest.fixture
def store(redis_server: Any, open_redis: Any) -> Any:
    return open_redis(redis_server.url)


def test_what_was_written_lies_in_its_shards_and_is_read(store: Any) -> None:
    generation, keys, rows = written(store)
    assert (store.digests(generation, 0) == digests_of(keys, rows)).all()
    strangers = random_rows(500, seed=9)[0]
    asked = np.concatenate([keys[::2], strangers, keys[:3]])
    read, there, states = store.read(generation, 0, asked)
    assert states.tolist() == [1] * 1000 + [0] * 500 + [1] * 3
    assert (read[states == 1] == np.concatenate([rows[::2], rows[:3]])).all()
    assert not read[states == 0].any()
    assert (there == np.where(states == 1, generation.row_version, 0)).all()
    # Only what was asked for is returned.
    assert not np.delete(store.digests(generation, 0, [7]), 7, axis=0).any()
    assert not store.digests(generation, 0, []).any()


def test_markers_say_which_shards_are_whole(store: Any, redis_server: Any) -> None:
    generation = new_generation(store, tables=2)
    keys, rows = random_rows()
    assert store.missing_markers(generation) == list(range(SHARDS))
    sums = digests_of(keys, rows)
    store.set_markers(generation, [sums, sums + np.uint64(1)])
    assert store.missing_markers(generation) == []
    names, _ = markers_of(generation)
    marker = redis_server.call("HGETALL", names[5])
    assert marker == {
        b"wm": generation.row_version.to_bytes(8, "little"),
        b"0": sums[5].tobytes(),
        b"1": (sums[5] + np.uint64(1)).tobytes(),
    }
    redis_server.call("DEL", names[5], names[2])
    assert store.missing_markers(generation) == [2, 5]


def test_a_page_that_is_lost_is_not_taken_for_unknown_keys(store: Any, redis_server: Any) -> None:
    generation, keys, rows = written(store)
    redis_server.call("FLUSHALL")
    with pytest.raises(UnavailableError, match=r"shard \d+ of generation \w+ has lost its rows"):
        store.read(generation, 0, keys)
    store.write(generation, 0, keys, rows)
    store.set_markers(generation, [digests_of(keys, rows)])
    assert store.read(generation, 0, keys)[2].all()


def test_a_damaged_page_makes_its_shard_differ_until_it_is_written_again(
    store: Any, redis_server: Any
) -> None:
    generation, keys, rows = written(store)
    expected = digests_of(keys, rows)
    names = PagedTable(generation, 0).names(4, 0, 10_000)
    page = next(name for name in names if redis_server.call("EXISTS", name))
    whole = redis_server.call("GET", page)
    other = redis_server.call("GET", next(n for n in names if n != page))
    flipped = whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]
    for damaged in (whole[:-1], whole + whole, other, b"", flipped, whole[:-80]):
        redis_server.call("SET", page, damaged)
        there = store.digests(generation, 0)
        assert np.flatnonzero((there != expected).any(axis=1)).tolist() == [4]
        if damaged in (whole[:-1], whole + whole, other):
            assert there[4].tolist() == [DAMAGED_ROWS, 0, 0]
        store.write(generation, 0, keys, rows, [4])
        assert (store.digests(generation, 0) == expected).all()


def test_a_table_without_rows_and_one_with_wide_rows_are_no_trouble(store: Any) -> None:
    empty = new_generation(store, rows=0)
    store.write(empty, 0, np.empty(0, np.int64), np.empty((0, 64), np.uint8))
    assert not store.digests(empty, 0).any()
    generation, keys, rows = written(store, rows=50, dim=4096)
    assert (store.digests(generation, 0) == digests_of(keys, rows)).all()
    assert store.put(generation, 0, keys, rows, versions(50, 2**60)) == 50


def test_many_pages_take_many_commands(store: Any) -> None:
    """More than one MGET a shard and more than one delivery a table."""
    generation, keys, rows = written(store, rows=300_000, dim=4)
    assert generation.tables[0].pages > 1000
    assert (store.digests(generation, 0) == digests_of(keys, rows)).all()
    pick = np.random.default_rng(0).permutation(len(keys))[:50_000]
    assert store.put(generation, 0, keys[pick], rows[::-1][pick], versions(50_000, 2**60)) == 50_000
    rows[pick] = rows[::-1][pick].copy()
    assert (store.digests(generation, 0) == digests_of(keys, rows)).all()


def test_deletion_shows_how_far_it_is_and_goes_on_where_it_was_stopped(
    store: Any, redis_server: Any
) -> None:
    generation, keys, rows = written(store, rows=100_000, dim=4)
    reports: list[tuple[int, int]] = []

    def stop(done: int, of: int) -> None:
        reports.append((done, of))
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.delete_rows(generation, stop)
    assert store.missing_markers(generation) == list(range(SHARDS))
    assert redis_server.call("DBSIZE") > 5
    store.delete_rows(generation, lambda done, of: reports.append((done, of)))
    assert reports[-1] == (SHARDS, SHARDS)
    assert {of for _, of in reports} == {SHARDS}
    assert redis_server.call("DBSIZE") == 1
    del keys, rows


def test_deletion_leaves_room_for_others(store: Any, redis_server: Any) -> None:
    """Half of the time at least, the server does something else or nothing."""
    generation, _, _ = written(store, rows=400_000, dim=4)
    redis_server.call("CONFIG", "RESETSTAT")
    began = time.monotonic()
    store.delete_rows(generation)
    seconds = time.monotonic() - began
    stats = redis_server.call("INFO", "commandstats")["cmdstat_unlink"]
    assert stats["usec"] < 0.5e6 * seconds
    names = generation.tables[0].pages * SHARDS
    assert stats["calls"] >= names / 128
