"""Dispatch: for any keys and any number of shards, group -> lookup -> combine is one table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hotrow
from hotrow import _native
from hotrow.ops.table import Table

INT64 = st.integers(-(2**63), 2**63 - 1)
EXTREME = st.sampled_from([0, -1, 1, 2**63 - 1, -(2**63), 2**32, -(2**32), -(2**63) + 1])
KEYS = st.lists(st.one_of(INT64, EXTREME, st.integers(-5, 5)), max_size=200).map(
    lambda keys: np.array(keys, np.int64)
)


@given(KEYS)
def test_unique_restores_the_keys_and_keeps_the_order_of_first_appearance(keys):
    unique, inverse = _native.unique(keys)
    np.testing.assert_array_equal(unique[inverse], keys)
    seen = list(dict.fromkeys(keys.tolist()))
    assert unique.tolist() == seen


@given(KEYS, st.integers(1, 8), st.booleans())
def test_groups_hold_each_key_once_in_its_order(keys, shards, hashed):
    grouped, order, counts = _native.group_by_owner(keys, shards, hashed)
    np.testing.assert_array_equal(grouped, keys[order])
    assert sorted(order.tolist()) == list(range(len(keys)))
    assert counts.sum() == len(keys)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    for shard in range(shards):
        members = order[bounds[shard] : bounds[shard + 1]]
        assert members.tolist() == sorted(members.tolist())


@given(KEYS, st.integers(1, 8))
def test_the_owner_is_the_mathematical_modulus(keys, shards):
    grouped, _, counts = _native.group_by_owner(keys, shards, False)
    owners = np.repeat(np.arange(shards), counts)
    # Python's % has the sign of the divisor, on integers of any size.
    assert [int(k) % shards for k in grouped] == owners.tolist()


@settings(deadline=None)
@given(KEYS, st.integers(1, 8), st.booleans())
def test_group_lookup_combine_equals_one_table(keys, shards, hashed):
    config = hotrow.TableConfig("t", 3)
    single = Table(config, seed=7)
    expected = single.lookup(keys, insert=True)
    # By hand, over N tables: what ranks will do.
    tables = [Table(config, seed=7) for _ in range(shards)]
    grouped, order, counts = _native.group_by_owner(keys, shards, hashed)
    parts = np.split(grouped, np.cumsum(counts)[:-1])
    rows = [
        table.lookup(np.ascontiguousarray(part), insert=True)
        for table, part in zip(tables, parts, strict=True)
    ]
    combined = np.empty_like(expected)
    combined[order] = np.concatenate(rows)
    np.testing.assert_array_equal(combined, expected)
    assert sum(table.size for table in tables) == single.size


@settings(deadline=None)
@given(KEYS, st.integers(1, 8), st.booleans(), st.integers(0, 2**32 - 1))
def test_a_sharded_table_trains_exactly_like_one_table(keys, shards, hashed, seed):
    gradients = np.random.default_rng(seed).normal(size=(len(keys), 3)).astype(np.float32)
    one = Table(hotrow.TableConfig("t", 3), seed=7)
    many = Table(hotrow.TableConfig("t", 3, shards=shards, hash_owner=hashed), seed=7)
    for table in (one, many):
        table.update(keys, gradients)
    np.testing.assert_array_equal(many.lookup(keys), one.lookup(keys))
    assert many.digest() == one.digest()


def test_zero_shards_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        _native.group_by_owner(np.zeros(1, np.int64), 0)
