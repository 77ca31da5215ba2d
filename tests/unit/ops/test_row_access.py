"""Rows of a table by key: search, assign, remove, and files of all of them."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

import hotrow
from hotrow.errors import InvalidArgumentError, OutOfRangeError, UnimplementedError
from hotrow.ops.export.changed_rows import changed_rows
from hotrow.ops.ranks import Ranks
from hotrow.ops.table import Table

ADAM = hotrow.Adam(0.1)


def trained(**options):
    """Returns a table with keys 1, 2, 3, each updated once."""
    table = Table(hotrow.TableConfig("t", 4, **{"optimizer": ADAM, **options}), seed=1)
    keys = np.array([1, 2, 3])
    table.lookup(keys, insert=True)
    table.update(keys, np.ones((3, 4), np.float32))
    return table


def ones(count):
    return np.ones((count, 4), np.float32)


def lines(table):
    """Returns (state, clock, count) of each key."""
    return {
        int(key): (line[batch.layout.state_offset :].tobytes(), int(clock), int(count))
        for batch in table.export_batches()
        for key, line, clock, count in zip(
            batch.keys, batch.lines, batch.clocks, batch.counts, strict=True
        )
    }


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="float32"),
        pytest.param({"dtype": "bfloat16", "state_dtype": "bfloat16"}, id="bfloat16"),
        pytest.param({"dtype": "float16"}, id="float16"),
        pytest.param({"cache": hotrow.Cache(rows=2)}, id="cache"),
        pytest.param({"admission": hotrow.Admission(1)}, id="admission"),
        pytest.param({"shards": 3}, id="shards"),
    ],
)
def test_assigned_rows_keep_their_state_and_new_ones_begin(options):
    table, before = trained(**options), lines(trained(**options))
    weights = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    table.assign([2, -9], weights)
    assert table.lookup(np.array([-9, 2])).tolist() == weights[::-1].tolist()
    after = lines(table)
    assert {key: after[key] for key in (1, 3)} == {key: before[key] for key in (1, 3)}
    assert after[2] == (before[2][0], 2, before[2][2])
    fresh = Table(table.config, seed=1)
    fresh.lookup(np.array([-9]), insert=True)
    assert after[-9][0] == lines(fresh)[-9][0]
    assert after[-9][1:] == (2, 0)


def test_rows_on_disk_are_assigned_too(tmp_path):
    table = trained(cache=hotrow.Cache(rows=2, disk=str(tmp_path)))
    state = lines(table)[3][0]
    table.assign([3, 4], ones(2))
    assert table.lookup(np.array([3, 4])).tolist() == ones(2).tolist()
    assert lines(table)[3][0] == state
    assert table.remove([3]) == 1
    assert len(table) == 3


def test_a_table_is_a_container_of_keys():
    table = trained()
    assert len(table) == 3
    assert 3 in table
    assert 4 not in table
    assert table.contains([4, 3, 3]).tolist() == [False, True, True]
    assert table.contains(np.zeros(0, np.int64)).shape == (0,)
    assert bool(Table(hotrow.TableConfig("empty", 4), seed=1))
    with pytest.raises(InvalidArgumentError, match="must be signed integers"):
        _ = 3.5 in table


def test_incremental_exports_see_assigned_and_removed_rows():
    table = trained()
    table.note_exported("a store", table.step)
    history, since = table.history, table.step
    table.assign([2, 9], ones(2))
    assert table.remove([1, 1, 77]) == 1
    changes = list(changed_rows(table, "float32", since))
    assert sorted(key for change in changes for key in change.keys.tolist()) == [2, 9]
    assert [key for change in changes for key in change.removed.tolist()] == [1]
    assert table.history == history, "an export that follows may be incremental"
    table.assign([1], ones(1))
    assert not len(table.tombstones()[0]), "the key is back"


def test_increments_of_checkpoints_see_assigned_and_removed_rows():
    table = trained()
    table.snapshot("all").keep()
    table.assign([2, 9], ones(2))
    table.remove([1])
    snapshot = table.snapshot("checkpoint")
    keys = []
    while len(read := snapshot.read(10)[0]):
        keys += read.tolist()
    assert sorted(keys) == [2, 9]
    assert snapshot.removed.tolist() == [1]
    snapshot.close()


def test_all_rows_go_to_files(tmp_path):
    table = trained(dtype="bfloat16")
    expected = {key: table.lookup(np.array([key]))[0].tolist() for key in (1, 2, 3)}
    sizes = [len(keys) for keys, _ in table.batches(2)]
    assert sum(sizes) == 3
    assert max(sizes) <= 2
    table.save_npz(tmp_path / "t.npz")
    with np.load(tmp_path / "t.npz") as found:
        assert dict(zip(found["keys"].tolist(), found["weights"].tolist(), strict=True)) == expected
    table.save_parquet(tmp_path / "t.parquet")
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert {row["key"]: row["weights"] for row in rows} == expected
    empty = Table(hotrow.TableConfig("empty", 4), seed=1)
    empty.save_npz(tmp_path / "empty.npz")
    empty.save_parquet(tmp_path / "empty.parquet")
    assert np.load(tmp_path / "empty.npz")["weights"].shape == (0, 4)
    assert pq.read_table(tmp_path / "empty.parquet").num_rows == 0


@pytest.mark.parametrize(
    ("keys", "weights", "line"),
    [
        ([1, 1], ones(2), "key 1 is given twice"),
        ([1], ones(2), r"weights of shape \(2, 4\); must be \(1, 4\)"),
        ([1.0], ones(1), "keys of type float64"),
        ([[1]], ones(1), r"keys of shape \(1, 1\)"),
        ([7, 8], [[1] * 4, [1, 1, np.nan, 1]], "weights of key 8 are not finite as float16"),
        ([7], [[1e30] * 4], "weights of key 7 are not finite as float16"),
    ],
)
def test_what_cannot_be_assigned_changes_nothing(keys, weights, line):
    table = trained(dtype="float16")
    before = table.digest()
    with pytest.raises(InvalidArgumentError, match=line):
        table.assign(keys, weights)
    assert table.digest() == before


def test_keys_outside_of_the_vocabulary_and_ranks_are_refused():
    table = trained(vocabulary_size=10)
    with pytest.raises(OutOfRangeError, match="key 10"):
        table.assign([10], ones(1))
    assert 10 not in table
    table.ranks = Ranks()
    table.ranks.size = 2
    with pytest.raises(UnimplementedError, match="split over 2 ranks"):
        table.assign([1], ones(1))
