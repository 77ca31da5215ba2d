"""Rows marked for publishing, and snapshots of them beside those of checkpoints."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from waiting import wait_until

import hotrow
from hotrow.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError
from hotrow.ops.ranks import thread_ranks
from hotrow.ops.table import Table
from hotrow.ops.table_contents import open_snapshots

SGD = hotrow.SGD(1.0)


def new_table(name="t", **options):
    options = {"optimizer": SGD, "initializer": hotrow.Constant(0.0), **options}
    return Table(hotrow.TableConfig(name, 2, **options), seed=1)


def train(table, *keys):
    """One step, which takes 1 from each weight of these rows."""
    keys = np.array(keys)
    table.lookup(keys, insert=True)
    table.update(keys, np.ones((len(keys), 2), np.float32))


def read_all(snapshot, piece=2):
    """Returns {key: clock} of a snapshot."""
    rows = {}
    while len((read := snapshot.read(piece))[0]):
        keys, _, clocks, *_ = read
        assert not set(keys.tolist()) & set(rows)
        rows.update(zip(keys.tolist(), clocks.tolist(), strict=True))
    return rows


def published(table, keep=True):
    """Returns ({key: clock}, removed) of a snapshot for publishing."""
    snapshot = table.snapshot("publish")
    rows, removed = read_all(snapshot), snapshot.removed.tolist()
    if keep:
        snapshot.keep()
    else:
        snapshot.close()
    return rows, removed


def test_a_snapshot_has_what_changed_since_the_last_kept_one():
    table = new_table()
    train(table, 1, 2, 3)
    table.begin_publishing(table.step)
    assert published(table) == ({}, [])
    train(table, 2, 4)
    table.remove_rows([3])
    assert table.marked_rows == 3
    assert published(table, keep=False) == ({2: 2, 4: 2}, [3])
    assert table.marked_rows == 3
    train(table, 4, 5)
    assert published(table) == ({2: 2, 4: 3, 5: 3}, [3])
    assert table.marked_rows == 0
    assert published(table) == ({}, [])


def test_checkpoints_and_publishing_have_their_own_marks_at_the_same_time():
    table = new_table()
    train(table, 1, 2)
    table.begin_publishing(0)
    table.snapshot("all").keep()
    train(table, 2, 3)
    checkpoint, publish = table.snapshot("checkpoint"), table.snapshot("publish")
    train(table, 1, 2, 3, 4)
    assert read_all(publish) == {1: 1, 2: 2, 3: 2}
    publish.keep()
    train(table, 4)
    assert read_all(checkpoint) == {2: 2, 3: 2}
    checkpoint.close()
    assert read_all(table.snapshot("checkpoint")) == {1: 3, 2: 3, 3: 3, 4: 4}
    assert published(table) == ({1: 3, 2: 3, 3: 3, 4: 4}, [])


def test_it_is_refused_before_marks_begin_and_beside_another_one():
    table = new_table()
    train(table, 1)
    assert table.marked_rows == 0
    with pytest.raises(FailedPreconditionError, match="call begin_publishing first"):
        table.snapshot("publish")
    with pytest.raises(FailedPreconditionError, match="call begin_publishing first"):
        table.mark_for_publishing([1])
    table.begin_publishing(0)
    first = table.snapshot("publish")
    with pytest.raises(FailedPreconditionError, match="for publishing is open already"):
        table.snapshot("publish")
    with pytest.raises(FailedPreconditionError, match="for publishing is open; close it"):
        table.begin_publishing(0)
    with pytest.raises(FailedPreconditionError, match="cannot remove rows while a snapshot is"):
        table.remove_rows([1])
    assert first.state == b""
    assert first.digest is None
    assert not first.digests_all
    with pytest.raises(ValueError, match="must be 'all', 'checkpoint' or 'publish'"):
        table.snapshot("export")


def test_keeping_needs_the_rows_to_be_read():
    table = new_table()
    train(table, 1, 2, 3)
    table.begin_publishing(0)
    snapshot = table.snapshot("publish")
    assert len(snapshot.read(3)[0]) > 0
    with pytest.raises(FailedPreconditionError, match="not read to its end"):
        snapshot.keep()
    snapshot.close()
    assert published(table) == ({1: 1, 2: 1, 3: 1}, [])


@pytest.mark.parametrize("cache", [None, hotrow.Cache(rows=2)], ids=["memory", "cache"])
def test_a_step_marks_what_changed_after_it(cache):
    expiry = hotrow.Expiry(after_steps=3, sweep_steps=1)
    table = new_table(cache=cache, expiry=expiry)
    table.keep_tombstones()
    train(table, 1, 2)
    train(table, 2, 3)
    train(table, 2)
    train(table, 2, 4)
    train(table, 2)  # 1 expires
    table.lookup(np.array([9]), insert=True)  # not committed: of the next step
    assert table.tombstones()[0].tolist() == [1]
    since_4 = {2: 5, 9: 6}
    for since, rows, removed in [
        (0, {2: 5, 3: 2, 4: 4, 9: 6}, [1]),
        (3, {2: 5, 4: 4, 9: 6}, [1]),
        (4, since_4, [1]),
        (5, {9: 6}, []),
        (4, since_4, [1]),  # it resets the marks
    ]:
        table.begin_publishing(since)
        assert table.marked_rows == len(rows) + len(removed)
        assert published(table, keep=False) == (rows, removed)
    train(table, 2)  # 3 expires
    assert published(table) == ({2: 6, 9: 6}, [1, 3])
    with pytest.raises(InvalidArgumentError, match="since step 7; at most its step, 6"):
        table.begin_publishing(7)
    table.forget_tombstones(5)
    with pytest.raises(FailedPreconditionError, match="which keys expired up to step 5"):
        table.begin_publishing(4)
    assert published(table) == ({}, [])  # a refused call changes no marks
    table.begin_publishing(None)
    assert published(table) == ({2: 6, 4: 4, 9: 6}, [])


def test_keys_are_marked_by_hand():
    table = new_table(vocabulary_size=10)
    train(table, 1, 2, 3)
    table.begin_publishing(table.step)
    table.mark_for_publishing([2, 7, 2, 7])
    assert published(table, keep=False) == ({2: 1}, [7])
    train(table, 7)  # has a row by now
    assert published(table) == ({2: 1, 7: 2}, [])
    with pytest.raises(OutOfRangeError, match="key 10"):
        table.mark_for_publishing([10])


def test_parts_of_a_table_mark_the_keys_that_they_own():
    parts = thread_ranks(2, timeout_seconds=60)
    tables = [
        Table(hotrow.TableConfig("t", 2, sharding="row", optimizer=SGD), 1, ranks)
        for ranks in parts
    ]
    removed = []
    for table in tables:
        table.begin_publishing(0)
        table.mark_for_publishing(np.arange(10))
        removed.append(published(table)[1])
    assert sorted(removed[0] + removed[1]) == list(range(10))
    assert all(removed)


def wide_table(name):
    """Returns a table of rows of 16 KiB: 64 MiB, which copies may take, are 4,096."""
    options = {"optimizer": SGD, "initializer": hotrow.Constant(0.0)}
    return Table(hotrow.TableConfig(name, 4096, **options), seed=1)


def test_one_that_takes_too_much_memory_is_lost_and_training_goes_on():
    wide, narrow = wide_table("w"), wide_table("n")
    keys = np.arange(6000)
    for table in (wide, narrow):
        table.lookup(keys, insert=True)
        table.begin_publishing(None)
    ones = np.ones((6000, 4096), np.float32)
    snapshots = open_snapshots([wide, narrow], "publish")
    assert len(snapshots[1].read(100)[0]) > 0
    wide.update(keys, ones)
    wide.lookup(keys, insert=True)  # a step finds the copies of the step before
    assert [snapshot.lost for snapshot in snapshots] == [True, True]
    assert snapshots[0].copied_bytes == 0
    for snapshot in snapshots:
        assert snapshot.waited_seconds == 0
        with pytest.raises(FailedPreconditionError, match="was given up: rows that training"):
            snapshot.read(100)
        with pytest.raises(FailedPreconditionError, match="was given up"):
            snapshot.keep()
        snapshot.close()
    for table, clock in ((wide, 1), (narrow, 1)):
        assert published(table)[0] == dict.fromkeys(range(6000), clock)


def test_counting_marks_beside_a_step_that_waits_stops_no_reader():
    table = wide_table("w")
    keys = np.arange(6000)
    table.lookup(keys, insert=True)
    table.begin_publishing(None)
    checkpoint = table.snapshot("all")

    def step():
        table.update(keys, np.ones((6000, 4096), np.float32))
        table.lookup(keys, insert=True)  # waits until copies are read

    with ThreadPoolExecutor(2) as pool:
        trainer = pool.submit(step)
        wait_until(lambda: checkpoint.copied_bytes > 64 << 20, seconds=60)
        count = pool.submit(lambda: table.marked_rows)
        time.sleep(0.2)
        assert len(read_all(checkpoint, 500)) == 6000
        trainer.result()
        assert count.result() == 6000
    assert not checkpoint.lost
    checkpoint.keep()
