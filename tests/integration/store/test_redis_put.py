"""Versioned writes into pages, by the function inside Redis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from integration.store.random_generations import new_generation, random_rows, versions, written

from hotrow.errors import NotFoundError
from hotrow.store.redis.functions import LIBRARY
from hotrow.store.redis.layout import PagedTable

TOMBSTONE = 1 << 63
# Where doubles, signs, halves and bytes have their borders.
BORDERS = [0, 1, 255, 256, 2**31, 2**32 - 1, 2**32, 2**52, 2**53 - 1, 2**53, 2**53 + 1, 2**62]
BORDERS += [2**63 - 2, 2**63 - 1, 5 << 40, (5 << 40) + 1, (1 << 62) + (1 << 32) - 1]


@pytest.fixture
def store(redis_server: Any, open_redis: Any) -> Any:
    return open_redis(redis_server.url)


def test_a_version_goes_only_over_an_older_one(store: Any) -> None:
    generation, _, _ = written(store, rows=100)
    both = np.array([[old, new] for old in BORDERS for new in BORDERS], np.uint64)
    keys = np.arange(len(both), dtype=np.int64)
    first, second = (np.full((len(both), 64), value, np.uint8) for value in (1, 2))
    assert store.put(generation, 0, keys, first, both[:, 0]) == len(both)
    newer = both[:, 1] > both[:, 0]
    assert store.put(generation, 0, keys, second, both[:, 1]) == newer.sum()
    rows, there, states = store.read(generation, 0, keys)
    assert (rows[:, 0] == np.where(newer, 2, 1)).all()
    assert (there == both.max(axis=1)).all()
    assert (states == 1).all()


def test_a_tombstone_hides_a_row_and_keeps_older_ones_away(store: Any) -> None:
    generation, keys, rows = written(store, rows=100)
    old = generation.row_version
    gone, new = keys[:10], np.array([7], np.int64)
    tombs = np.concatenate([gone, new])
    some = np.ones((len(tombs), 64), np.uint8)
    assert store.put(generation, 0, tombs, some, versions(11, TOMBSTONE | old)) == 1
    assert store.put(generation, 0, gone, some[:10], versions(10, TOMBSTONE | old + 2)) == 10
    read, there, states = store.read(generation, 0, tombs)
    assert not states.any()
    assert not read.any()
    assert there[:10].tolist() == [TOMBSTONE | old + 2] * 10
    assert store.put(generation, 0, gone, rows[:10], versions(10, old + 1)) == 0
    assert store.digests(generation, 0)[:, 0].sum() == 90
    assert store.put(generation, 0, gone, rows[:10], versions(10, old + 3)) == 10
    assert (store.read(generation, 0, keys)[0] == rows).all()


def test_new_rows_join_pages_that_were_there_and_pages_that_were_not(store: Any) -> None:
    generation = new_generation(store, rows=200)
    store.set_markers(generation, [np.zeros((16, 3), np.uint64)])
    keys, rows = random_rows(3000)
    order = np.random.default_rng(3).permutation(len(keys))
    for part in np.array_split(order, 7):
        count = store.put(generation, 0, keys[part], rows[part], versions(len(part), 1))
        assert count == len(part)
    read, _, states = store.read(generation, 0, keys)
    assert (read == rows).all()
    assert states.all()


def test_rows_that_come_later_take_no_more_memory(store: Any, redis_server: Any) -> None:
    generation = new_generation(store, rows=20_000)
    store.set_markers(generation, [np.zeros((16, 3), np.uint64)])
    keys, rows = random_rows(20_000)
    order = np.random.default_rng(3).permutation(len(keys))
    before = redis_server.call("INFO", "memory")["used_memory"]
    for part in np.array_split(order, 4):
        store.put(generation, 0, keys[part], rows[part], versions(len(part), 1))
    store.put(generation, 0, keys, rows, versions(len(keys), 2))
    taken = redis_server.call("INFO", "memory")["used_memory"] - before
    assert taken / len(keys) < 125


def test_a_key_inside_a_row_is_not_taken_for_a_record(store: Any) -> None:
    """Rows that hold the bytes of keys, at any place, also across the border of two records."""
    generation = new_generation(store, rows=1)
    store.set_markers(generation, [np.zeros((16, 3), np.uint64)])
    table = PagedTable(generation, 0)
    assert table.pages == 1
    keys = np.arange(1, 1000, dtype=np.int64)
    rows = np.tile(keys[::-1].copy().view(np.uint8).reshape(-1, 8), (1, 8))
    rows = np.roll(rows, 3, axis=1)
    store.put(generation, 0, keys[:500], np.ascontiguousarray(rows[:500]), versions(500, 9))
    store.put(generation, 0, keys, np.ascontiguousarray(rows), versions(999, 10))
    read, there, states = store.read(generation, 0, keys)
    assert (read == rows).all()
    assert (there == 10).all()
    assert states.all()
    assert store.digests(generation, 0)[:, 0].sum() == 999


PUT = st.tuples(st.integers(0, 30), st.sampled_from(BORDERS), st.booleans(), st.binary(max_size=3))


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(puts=st.lists(st.lists(PUT, max_size=12, unique_by=lambda one: one[0]), max_size=8))
def test_puts_in_any_order_leave_the_newest_of_each_key(
    store: Any, puts: list[list[tuple[int, int, bool, bytes]]]
) -> None:
    generation = new_generation(store, rows=1, dim=1)
    store.set_markers(generation, [np.zeros((16, 3), np.uint64)])
    expected: dict[int, tuple[int, bytes]] = {}
    for put in puts:
        keys = np.array([key for key, *_ in put], np.int64)
        stamps = np.array([v | TOMBSTONE * gone for _, v, gone, _ in put], np.uint64)
        texts = [text.ljust(4, b"\0") for *_, text in put]
        rows = np.frombuffer(b"".join(texts), np.uint8).reshape(-1, 4)
        newer = 0
        for (key, version, gone, _), text in zip(put, texts, strict=True):
            if key not in expected or version > expected[key][0] & (TOMBSTONE - 1):
                expected[key] = (version | TOMBSTONE * gone, b"\0" * 4 if gone else text)
                newer += 1
        assert store.put(generation, 0, keys, rows, stamps) == newer
    keys = np.arange(31, dtype=np.int64)
    rows, there, states = store.read(generation, 0, keys)
    for key in range(31):
        version, text = expected.get(key, (0, b"\0" * 4))
        assert (int(there[key]), rows[key].tobytes()) == (version, text)
        assert states[key] == (key in expected and version < TOMBSTONE)


def test_nothing_is_put_where_the_marker_is_missing(store: Any, redis_server: Any) -> None:
    generation, keys, rows = written(store)
    redis_server.call("FLUSHALL")
    with pytest.raises(NotFoundError, match=r"has lost rows .*; export the model again"):
        store.put(generation, 0, keys, rows, versions(len(keys), 2**60))
    assert redis_server.call("DBSIZE") == 0


def test_functions_that_are_gone_are_loaded_again(store: Any, redis_server: Any) -> None:
    generation, keys, rows = written(store)
    assert store.put(generation, 0, keys, rows, versions(len(keys), 2**60)) == len(keys)
    redis_server.call("FUNCTION", "FLUSH")
    assert store.put(generation, 0, keys, rows, versions(len(keys), 2**61)) == len(keys)
    redis_server.call("FUNCTION", "FLUSH")
    assert store.records.swap("a", None, "1")
    assert LIBRARY in str(redis_server.call("FUNCTION", "LIST"))


def test_no_row_at_all_may_be_put(store: Any) -> None:
    generation, keys, rows = written(store, rows=10)
    assert store.put(generation, 0, keys[:0], rows[:0], versions(0, 1)) == 0
