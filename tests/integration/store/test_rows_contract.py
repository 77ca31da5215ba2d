"""What rows of every store do: they are read as written, and only newer ones replace them."""

from __future__ import annotations

import concurrent.futures

import numpy as np
import pytest
from stored_rows import ArrayRows, begun, float_rows, some_keys, written

from hotrow import _native
from hotrow.errors import NotFoundError
from hotrow.store import open_store
from hotrow.store.spec import STORED_TYPES, row_version

TOMBSTONE = 1 << 63


@pytest.mark.parametrize("row_type", STORED_TYPES)
@pytest.mark.parametrize("dim", [1, 16, 64])
def test_rows_are_read_as_written_and_other_keys_are_unknown(store, row_type, dim):
    source = ArrayRows("t", some_keys(2000), float_rows(2000, dim), row_type)
    generation = written(store, source)
    others = some_keys(500, seed=1)
    rows, versions, states = store.read(generation, 0, np.concatenate([source.keys, others]))
    np.testing.assert_array_equal(rows[:2000], source.rows)
    assert (versions[:2000] == generation.row_version).all()
    assert states.tolist() == [1] * 2000 + [0] * 500
    assert (versions[2000:] == 0).all()


def test_tables_and_generations_do_not_meet(store):
    keys = np.arange(-50, 50, dtype=np.int64)
    generations = []
    for seed in (1, 2):
        a = ArrayRows("a", keys, float_rows(100, 4, seed))
        b = ArrayRows("b/wide", keys, float_rows(100, 8, 10 + seed))
        generations.append((written(store, a, b), a, b))
    for generation, a, b in generations:
        np.testing.assert_array_equal(store.read(generation, 0, a.keys)[0], a.rows)
        np.testing.assert_array_equal(store.read(generation, 1, b.keys)[0], b.rows)


def test_digests_distinguish_every_shard_whatever_the_order(store):
    source = ArrayRows("t", some_keys(3000), float_rows(3000, 4))
    generation = written(store, source)
    wanted = _native.record_digests(source.keys, source.rows, generation.shards)
    assert wanted[:, 0].sum() == 3000
    np.testing.assert_array_equal(store.digests(generation, 0), wanted)
    some = store.digests(generation, 0, [3, 5])
    np.testing.assert_array_equal(some[[3, 5]], wanted[[3, 5]])
    assert not np.delete(some, [3, 5], axis=0).any()


def test_a_table_without_rows_is_a_table(store):
    empty = ArrayRows("none", some_keys(0), float_rows(0, 4))
    generation = written(store, ArrayRows("t", some_keys(9), float_rows(9, 2)), empty)
    assert not store.digests(generation, 1).any()
    assert store.read(generation, 1, some_keys(5))[2].tolist() == [0] * 5


def test_rows_of_some_shards_are_written_alone(store):
    source = ArrayRows("t", some_keys(1000), float_rows(1000, 4), pieces=1)
    generation = begun(store, source)
    (piece,) = source.pieces()
    store.write(generation, 0, *piece, shards=[2, 7])
    wanted = _native.record_digests(source.keys, source.rows, generation.shards)
    there = store.digests(generation, 0)
    np.testing.assert_array_equal(there[[2, 7]], wanted[[2, 7]])
    assert not np.delete(there, [2, 7], axis=0).any()
    store.write(generation, 0, *piece)  # again, over what is there
    np.testing.assert_array_equal(store.digests(generation, 0), wanted)


def test_put_replaces_older_rows_only(store):
    old = ArrayRows("t", some_keys(300), float_rows(300, 4))
    generation = written(store, old)
    base = generation.row_version
    # Neighbours that doubles, signed numbers and texts confuse; all above or below the base.
    versions = [base - 1, base, base + 1, row_version(1 << 22, 0), row_version((1 << 23) - 1, 5)]
    given = np.array([versions[i % 5] for i in range(300)], np.uint64)
    new = _native.encode_rows("float32", float_rows(300, 4, seed=1))
    assert store.put(generation, 0, old.keys, new, given) == 180
    assert store.put(generation, 0, old.keys, new, given) == 0
    rows, stored, states = store.read(generation, 0, old.keys)
    newer = given > base
    np.testing.assert_array_equal(rows[newer], new[newer])
    np.testing.assert_array_equal(rows[~newer], old.rows[~newer])
    np.testing.assert_array_equal(stored, np.maximum(given, base))
    assert (states == 1).all()


@pytest.mark.parametrize("border", [1 << 31, 1 << 32, 1 << 40, 1 << 53, (1 << 62) + (1 << 61)])
def test_versions_are_compared_as_integers(store, border):
    source = ArrayRows("t", some_keys(1), float_rows(1, 2))
    generation = written(store, source)
    ascending = sorted({generation.row_version + 1, border - 1, border, border + 1})
    for version in [v for v in ascending if v > generation.row_version]:
        assert store.put(generation, 0, source.keys, source.rows, _versions([version])) == 1
        assert store.put(generation, 0, source.keys, source.rows, _versions([version - 1])) == 0
        assert store.read(generation, 0, source.keys)[1].tolist() == [version]


def test_new_keys_are_added_and_the_digest_knows_them(store):
    source = ArrayRows("t", some_keys(100), float_rows(100, 4))
    generation = written(store, source)
    more = ArrayRows("t", some_keys(2000, seed=5), float_rows(2000, 4, seed=5))
    versions = np.full(2000, generation.row_version + 1, np.uint64)
    assert store.put(generation, 0, more.keys, more.rows, versions) == 2000
    np.testing.assert_array_equal(store.read(generation, 0, more.keys)[0], more.rows)
    wanted = _native.record_digests(source.keys, source.rows, generation.shards)
    wanted += _native.record_digests(more.keys, more.rows, generation.shards)
    np.testing.assert_array_equal(store.digests(generation, 0), wanted)


def test_a_tombstone_hides_a_row_until_a_newer_one_comes(store):
    source = ArrayRows("t", some_keys(20), float_rows(20, 4))
    generation = written(store, source)
    base = generation.row_version
    keys, rows = source.keys[:5], source.rows[:5]
    assert store.put(generation, 0, keys, rows, _versions([TOMBSTONE | (base + 2)] * 5)) == 5
    _, versions, states = store.read(generation, 0, source.keys)
    assert states.tolist() == [0] * 5 + [1] * 15
    assert (versions[:5] == TOMBSTONE | (base + 2)).all()
    assert store.digests(generation, 0)[:, 0].sum() == 15
    assert store.put(generation, 0, keys, rows, _versions([base + 1] * 5)) == 0
    assert store.put(generation, 0, keys, rows, _versions([base + 3] * 5)) == 5
    assert (store.read(generation, 0, source.keys)[2] == 1).all()


def test_the_newest_of_many_writers_wins_whatever_the_order(store, store_url):
    source = ArrayRows("t", some_keys(50), float_rows(50, 4))
    generation = written(store, source)
    base = generation.row_version

    def write(number: int) -> None:
        mine = open_store(store_url)
        rng = np.random.default_rng(number)
        for version in rng.permutation(20):
            rows = np.full((50, 4), float(version), np.float32).view(np.uint8)
            versions = _versions([base + 1 + int(version)] * 50)
            mine.put(generation, 0, source.keys, rows, versions)
        mine.close()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    rows, versions, _ = store.read(generation, 0, source.keys)
    assert (versions == base + 20).all()
    assert (rows.view(np.float32) == 19.0).all()


def test_put_into_a_store_that_lost_its_rows_says_so(store):
    source = ArrayRows("t", some_keys(20), float_rows(20, 4))
    generation = begun(store, source)
    assert store.missing_markers(generation) == list(range(16))
    versions = np.full(20, generation.row_version + 1, np.uint64)
    with pytest.raises(NotFoundError, match="export"):
        store.put(generation, 0, source.keys, source.rows, versions)


def test_deletion_takes_rows_and_markers_of_one_generation_alone(store):
    source = ArrayRows("t", some_keys(2000), float_rows(2000, 4))
    gone, stays = written(store, source), written(store, source)
    steps = []
    store.delete_rows(gone, lambda done, of: steps.append((done, of)))
    assert steps[-1][0] == steps[-1][1] > 0
    assert store.missing_markers(gone) == list(range(16))
    assert store.missing_markers(stays) == []
    np.testing.assert_array_equal(store.read(stays, 0, source.keys)[0], source.rows)
    store.delete_rows(gone)  # once more


def _versions(versions):
    return np.array(versions, np.uint64)
