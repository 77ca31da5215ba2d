"""MemoryReader, HotRows and ServingLookup from Python; ops/native/tests has the rest."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from native_readers import native_readers

from hotrow import _native
from hotrow.errors import HotrowError

WIDTH = 4
TABLES = [("users", WIDTH, "float32", 0.5, 100), ("items", WIDTH, "bfloat16", 0.0, 100)]


def weights_of(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Returns weights that every row type holds exactly: (N, WIDTH)."""
    return (keys[:, None] % 100 + np.arange(WIDTH)).astype(np.float32)


@pytest.fixture
def reader() -> Any:
    """Returns a reader of keys 0 to 99 of two tables."""
    reader = native_readers().MemoryReader(TABLES)
    keys = np.arange(100, dtype=np.int64)
    for table, (_, _, row_type, _, _) in enumerate(TABLES):
        rows = _native.encode_rows(row_type, weights_of(keys))
        reader.put(table, keys, rows, np.full(100, 1, np.uint64))
    return reader


def test_a_lookup_gives_pooled_rows_and_says_what_was_cached(
    reader: Any,
) -> None:
    cache = native_readers().HotRows(reader, rows=1000)
    lookup = native_readers().ServingLookup(reader, cache, threads=2)
    keys = np.array([5, 7, 7, 1000], np.int64)
    splits = np.array([0, 2, 4], np.int64)
    weights = np.array([1, 2, 3, 4], np.float32)
    features = [(0, keys, None, None, 0), (1, keys, splits, weights, 1)]
    for hits in (0, 6):
        (plain, pooled), report, failure = lookup.lookup(features, timeout_seconds=math.inf)
        rows = weights_of(keys)
        rows[3] = 0.5
        np.testing.assert_array_equal(plain, rows)
        rows[3] = 0
        expected = np.add.reduceat(rows * weights[:, None], splits[:-1])
        np.testing.assert_array_equal(pooled, expected)
        assert (report["keys"], report["hits"], report["failed"], failure) == (8, hits, 0, "")
    assert cache.counts(0)["rows"] == 2
    assert cache.counts(0)["hits"] == 3
    assert cache.slots > 100
    assert cache.bytes > 100 * (WIDTH * 4 + 24)
    assert lookup.counts(1) == {"fetched": 4, "unknown": 2, "failed": 0, "defaulted": 0}
    assert lookup.waited == 0


def test_updates_and_tombstones_reach_cached_rows(reader: Any) -> None:
    cache = native_readers().HotRows(reader, bytes=100_000, policy=1)
    lookup = native_readers().ServingLookup(reader, cache)
    keys = np.array([5, 6], np.int64)
    lookup.lookup([(0, keys, None, None, 0)])
    versions = np.array([2, 2 | 1 << 63], np.uint64)
    rows = _native.encode_rows("float32", weights_of(keys) + 1000)
    reader.put(0, keys, rows, versions)
    cache.update(0, keys, rows, versions)
    (found,), report, _ = lookup.lookup([(0, keys, None, None, 0)])
    np.testing.assert_array_equal(found[0], weights_of(keys)[0] + 1000)
    np.testing.assert_array_equal(found[1], np.full(WIDTH, 0.5, np.float32))
    assert (report["hits"], report["unknown"]) == (1, 1)
    cache.invalidate_shard(0, 1)
    assert cache.counts(0)["rows"] == 0
    lookup.lookup([(0, keys, None, None, 0)])
    cache.clear()
    assert cache.counts(0)["removed"] == 3


def test_a_store_that_cannot_answer_fails_the_lookup_or_gives_default_rows(
    reader: Any,
) -> None:
    features = [(0, np.array([5, 5], np.int64), None, None, 0)]
    with pytest.raises(HotrowError, match="table users: 1 of 1 rows could not be read"):
        native_readers().ServingLookup(reader).lookup(features, timeout_seconds=0.0)
    lenient = native_readers().ServingLookup(reader, on_store_failure=1)
    (rows,), report, failure = lenient.lookup(features, timeout_seconds=0.0)
    assert (rows == 0.5).all()
    assert report["failed"] == 1
    assert "deadline" in failure
    assert lenient.counts(0)["defaulted"] == 2


def test_lookups_take_readers_of_the_products_binding(tmp_path: Path) -> None:
    keys = np.array([5, 6], np.int64)
    writer = _native.LmdbWriter(str(tmp_path), "g", "t", WIDTH * 4)
    writer.write(keys, weights_of(keys).view(np.uint8), 1)
    writer.close()
    table = {"name": "t", "dim": WIDTH, "row_type": "float32", "default_value": 0.5, "rows": 2}
    record = {"format": 1, "generation": "g", "number": 1, "shards": 1, "epoch": 0, "seq": 1}
    record |= {"state": "complete", "tables": [table | {"pages": 0}]}
    records = _native.LmdbRecords(str(tmp_path), create=True)
    assert records.swap_all([("generation/g", None, json.dumps(record))])
    records.close()
    reader = _native.LmdbReader(str(tmp_path), "g")
    cache = native_readers().HotRows(reader, rows=10)
    lookup = native_readers().ServingLookup(reader, cache)
    for hits in (0, 2):
        (rows,), report, _ = lookup.lookup([(0, keys, None, None, 0)])
        np.testing.assert_array_equal(rows, weights_of(keys))
        assert report["hits"] == hits


def test_wrong_arguments_are_named(reader: Any) -> None:
    keys = np.array([5], np.int64)
    with pytest.raises(HotrowError, match="give one of them"):
        native_readers().HotRows(reader)
    with pytest.raises(HotrowError, match="policy 2"):
        native_readers().HotRows(reader, rows=10, policy=2)
    with pytest.raises(HotrowError, match="on_store_failure 2"):
        native_readers().ServingLookup(reader, on_store_failure=2)
    with pytest.raises(HotrowError, match="row type"):
        native_readers().MemoryReader([("t", 4, "float64", 0.0, 0)])
    with pytest.raises(ValueError, match="put: bytes of the rows: length 3, must be 16"):
        reader.put(0, keys, np.zeros((1, 3), np.uint8))
    with pytest.raises(ValueError, match="update: versions"):
        native_readers().HotRows(reader, rows=10).update(
            0, keys, np.zeros((1, 16), np.uint8), np.zeros(2, np.uint64)
        )
    with pytest.raises(ValueError, match="row_splits"):
        native_readers().ServingLookup(reader).lookup([(0, keys, np.zeros(0, np.int64), None, 1)])
    with pytest.raises(IndexError):
        native_readers().ServingLookup(reader).lookup([(2, keys, None, None, 0)])
