"""The native reader reads what a store in Redis wrote."""

from __future__ import annotations

import json

import numpy as np
import pytest
from native_readers import native_readers
from stored_rows import ArrayRows, float_rows, some_keys, written

from hotrow import _native
from hotrow.store.spec import STORED_TYPES

TOMBSTONE, DATA_LOSS = 1 << 63, 15


@pytest.fixture(params=["redis_server", "redis_cluster"])
def store(request, open_redis):
    """An empty store in Redis."""
    return open_redis(request.getfixturevalue(request.param).url)


def reader_of(store, generation):
    topology = json.dumps(store.client.topology.as_json())
    return native_readers().RedisReader(generation.model_dump_json(), topology)


def test_rows_of_all_types_are_read_as_written(store):
    sources = [
        ArrayRows(row_type, some_keys(1500, seed), float_rows(1500, 9, seed), row_type)
        for seed, row_type in enumerate(STORED_TYPES)
    ]
    generation = written(store, *sources)
    reader = reader_of(store, generation)
    assert [table[2] for table in reader.tables] == list(STORED_TYPES)
    others = some_keys(300, seed=9)
    requests = [(i, np.concatenate([source.keys, others])) for i, source in enumerate(sources)]
    answers, code, message = reader.read(requests, 10.0)
    assert (code, message) == (0, "")
    for source, (rows, versions, states) in zip(sources, answers, strict=True):
        np.testing.assert_array_equal(rows[:1500], source.rows)
        assert (versions[:1500] == generation.row_version).all()
        assert states.tolist() == [1] * 1500 + [0] * 300


def test_rows_that_were_replaced_added_and_removed_are_read_so(store):
    source = ArrayRows("t", some_keys(1000), float_rows(1000, 4))
    generation = written(store, source)
    keys = np.concatenate([source.keys[:200], some_keys(100, seed=3)])
    rows = _native.encode_rows("float32", float_rows(300, 4, seed=4))
    versions = np.full(300, generation.row_version + 5, np.uint64)
    versions[:50] |= np.uint64(TOMBSTONE)
    assert store.put(generation, 0, keys, rows, versions) == 300
    ((got, got_versions, states),), code, _ = reader_of(store, generation).read([(0, keys)], 10.0)
    assert code == 0
    assert states.tolist() == [0] * 50 + [1] * 250
    np.testing.assert_array_equal(got[50:], rows[50:])
    np.testing.assert_array_equal(got_versions, versions)


def test_a_generation_that_is_deleted_fails_and_is_not_unknown(store):
    source = ArrayRows("t", some_keys(1000), float_rows(1000, 4))
    generation = written(store, source)
    reader = reader_of(store, generation)
    states = []

    def read_once(done=0, of=0):
        ((_, _, got),), code, _ = reader.read([(0, source.keys)], 10.0)
        assert code in (0, DATA_LOSS)
        states.append(set(got.tolist()))

    read_once()
    store.delete_rows(generation, read_once)
    read_once()
    assert states[0] == {1}
    assert states[-1] == {2}
    assert all(0 not in seen for seen in states)
