"""The embedded store: rows in LMDB, read by several environments of several processes."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow import _native
from hotrow.errors import (
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)
from hotrow.store.spec import Generation, State, StoredTable


def note(path, width, generation="g1", table="t", rows=0):
    """Writes the control record of a generation with one table."""
    text = Generation(
        generation=generation,
        number=1,
        model="m",
        version=1,
        step=0,
        source="",
        state=State.COMPLETE,
        schema_hash="",
        created_ms=0,
        epoch=1,
        seq=0,
        tables=(
            StoredTable(name=table, dim=width, row_type="float32", default_value=9.0, rows=rows),
        ),
    ).model_dump_json()
    records = _native.LmdbRecords(str(path), create=True)
    name = f"generation/{generation}"
    whole = f"whole/{generation}"
    records.swap_all([(name, records.get(name), text), (whole, records.get(whole), "[]")])
    records.close()


def write(path, keys, rows, generation="g1", table="t"):
    writer = _native.LmdbWriter(str(path), generation, table, rows.shape[1] * 4)
    writer.write(keys, rows.view(np.uint8), 1)
    writer.close()
    note(path, rows.shape[1], generation, table)


def reader(path, generation="g1"):
    return _native.LmdbReader(str(path), generation)


def rows_of(from_reader, keys):
    """Returns the rows float32 [N, D] and states uint8 [N] of keys."""
    ((rows, _, states),), failure, _ = from_reader.read([(0, keys)])
    assert failure == 0
    return rows.view(np.float32), states


@settings(deadline=None, max_examples=25)
@given(keys=st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1, max_size=50))
def test_every_row_is_read_back_and_other_keys_are_unknown(tmp_path_factory, keys):
    path = tmp_path_factory.mktemp("store")
    keys = np.array(keys, np.int64)
    rows = np.random.default_rng(0).normal(size=(len(keys), 2)).astype(np.float32)
    half = len(keys) // 2
    write(path, keys[half:], rows[half:])
    read, states = rows_of(reader(path), keys)
    np.testing.assert_array_equal(read[half:], rows[half:])
    assert states.tolist() == [0] * half + [1] * (len(keys) - half)


def test_a_scan_gives_every_row_once_in_pieces(tmp_path):
    keys = np.arange(-50, 50, dtype=np.int64)
    rows = np.repeat(keys[:, None], 2, axis=1).astype(np.float32)
    write(tmp_path, keys, rows)
    r = reader(tmp_path)
    after, seen = None, []
    while True:
        got, values, versions = r.scan(0, after, 7)
        if len(got) == 0:
            break
        np.testing.assert_array_equal(values.view(np.float32)[:, 0], got.astype(np.float32))
        assert (versions == 1).all()
        seen += got.tolist()
        after = int(got[-1])
    assert sorted(seen) == keys.tolist()


def test_generations_do_not_meet(tmp_path):
    key = np.zeros(1, np.int64)
    for generation, value in (("g1", 3.0), ("g2", 5.0)):
        write(tmp_path, key, np.full((1, 2), value, np.float32), generation, "a/wide")
    assert rows_of(reader(tmp_path, "g1"), key)[0][0, 0] == 3.0
    assert rows_of(reader(tmp_path, "g2"), key)[0][0, 0] == 5.0
    with pytest.raises(NotFoundError, match="no generation g3"):
        reader(tmp_path, "g3")


def test_a_row_of_another_width_is_reported_as_damage(tmp_path):
    write(tmp_path, np.zeros(1, np.int64), np.zeros((1, 2), np.float32))
    note(tmp_path, 3)
    with pytest.raises(DataLossError, match="the row of key 0 has 16 bytes; dim 3 needs 20"):
        reader(tmp_path).read([(0, np.zeros(1, np.int64))])


def test_a_store_with_fewer_rows_than_were_exported_is_refused(tmp_path):
    write(tmp_path, np.arange(5, dtype=np.int64), np.zeros((5, 2), np.float32))
    note(tmp_path, 2, rows=6)
    with pytest.raises(DataLossError, match="5 rows; 6 were exported"):
        reader(tmp_path)


def test_a_record_that_is_no_generation_is_damage(tmp_path):
    write(tmp_path, np.zeros(1, np.int64), np.zeros((1, 2), np.float32))
    records = _native.LmdbRecords(str(tmp_path), create=False)
    good = records.get("generation/g1")
    for bad in ("{}", "not json", good.replace('"dim":2', '"dim":-2'), good.replace("32", "33")):
        assert records.swap_all([("generation/g1", records.get("generation/g1"), bad)])
        with pytest.raises(DataLossError, match="damaged"):
            reader(tmp_path)


def test_put_writes_over_older_rows_only_and_tombstones_hide_rows(tmp_path):
    keys = np.arange(4, dtype=np.int64)
    write(tmp_path, keys[:3], np.ones((3, 1), np.float32))
    writer = _native.LmdbWriter(str(tmp_path), "g1", "t", 4)
    new = np.full((4, 1), 2.0, np.float32).view(np.uint8)
    border = 1 << 53
    versions = np.array([1, 2, (1 << 63) | (border + 1), border], np.uint64)
    assert writer.put(keys, new, versions) == 3
    assert writer.put(keys, new, versions) == 0
    rows, states = rows_of(reader(tmp_path), keys)
    assert states.tolist() == [1, 1, 0, 1]
    assert rows[[0, 1, 3], 0].tolist() == [1.0, 2.0, 2.0]
    # A double would not distinguish these versions.
    assert writer.put(keys[2:3], new[:1], np.array([border], np.uint64)) == 0
    assert writer.put(keys[2:3], new[:1], np.array([border + 2], np.uint64)) == 1


def test_a_store_that_is_not_there_or_not_a_store_is_one_clear_line(tmp_path):
    with pytest.raises(NotFoundError, match="cannot be opened: No such file"):
        reader(tmp_path / "absent")
    with pytest.raises(NotFoundError, match="holds no LMDB data"):
        reader(tmp_path)
    (tmp_path / "data.mdb").write_bytes(b"not a database" * 1000)
    with pytest.raises((DataLossError, UnavailableError), match="cannot be opened"):
        reader(tmp_path)


def test_the_digest_equals_that_of_the_table(tmp_path):
    import hotrow
    from hotrow.ops.table import Table

    table = Table(hotrow.TableConfig("t", 2), seed=3)
    table.lookup(np.arange(-100, 100, dtype=np.int64), insert=True)
    for batch in table.export_batches():
        write(tmp_path, batch.keys, np.ascontiguousarray(batch.weights))
    digests = reader(tmp_path).digests(0)
    assert digests.shape == (256, 3)
    rows, low, high = (int(x) for x in digests.sum(axis=0, dtype=np.uint64))
    assert (rows, f"{low:016x}{high:016x}") == (table.size, table.digest(weights_only=True))


def test_a_reader_sees_what_another_process_writes_even_past_its_map(tmp_path):
    write(tmp_path, np.zeros(1, np.int64), np.ones((1, 2), np.float32))
    r = reader(tmp_path)
    assert r.size(0) == 1
    program = (
        "import sys, numpy as np; from hotrow import _native\n"
        "w = _native.LmdbWriter(sys.argv[1], 'g1', 't', 8)\n"
        "for i in range(30):\n"
        "    k = np.arange(1, 100001, dtype=np.int64) + i * 100000\n"
        "    w.write(k, np.ones((100000, 8), np.uint8), 1)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert r.size(0) == 3_000_001


def test_a_process_may_write_a_store_that_it_reads(tmp_path):
    write(tmp_path, np.zeros(1, np.int64), np.ones((1, 2), np.float32))
    r = reader(tmp_path)
    write(tmp_path, np.ones(1, np.int64), np.ones((1, 2), np.float32))
    assert r.size(0) == 2


def test_files_replaced_under_an_open_store_are_another_store(tmp_path):
    store, other = tmp_path / "store", tmp_path / "other"
    key = np.zeros(1, np.int64)
    write(store, key, np.ones((1, 2), np.float32))
    write(other, key, np.full((1, 2), 2.0, np.float32))
    old = reader(store)
    (other / "data.mdb").replace(store / "data.mdb")
    new = reader(store)
    assert (rows_of(old, key)[0][0, 0], rows_of(new, key)[0][0, 0]) == (1.0, 2.0)


def test_a_writer_is_not_kept_out_by_readers_that_never_pause(tmp_path):
    write(tmp_path, np.zeros(1, np.int64), np.ones((1, 2), np.float32))
    stop = threading.Event()

    def read_on():
        r = reader(tmp_path)
        keys = np.arange(100, dtype=np.int64)
        while not stop.is_set():
            r.read([(0, keys)])

    threads = [threading.Thread(target=read_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        writer = _native.LmdbWriter(str(tmp_path), "g1", "t", 8)
        for i in range(5):  # each grows the map
            keys = np.arange(1_000_000, dtype=np.int64) + i * 1_000_000
            writer.write(keys, np.ones((len(keys), 8), np.uint8), 1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert reader(tmp_path).size(0) == 5_000_000


def test_random_writes_into_a_full_map_make_it_grow(tmp_path):
    rng = np.random.default_rng(1)
    keys = rng.permutation(2_000_000).astype(np.int64) * 7919
    write(tmp_path, keys, np.ones((len(keys), 1), np.float32))
    for _ in range(5):
        some = rng.choice(keys, 65536, replace=False)
        write(tmp_path, some, np.zeros((len(some), 1), np.float32))
    assert reader(tmp_path).size(0) == len(keys)


def test_a_writer_follows_a_map_that_another_process_has_grown(tmp_path):
    write(tmp_path, np.zeros(1, np.int64), np.ones((1, 2), np.float32))
    held = reader(tmp_path)
    program = (
        "import sys, numpy as np; from hotrow import _native\n"
        "k = np.arange(1, 3000001, dtype=np.int64)\n"
        "rows = np.ones((len(k), 8), np.uint8)\n"
        "_native.LmdbWriter(sys.argv[1], 'g1', 't', 8).write(k, rows, 1)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    write(tmp_path, np.array([-1], np.int64), np.ones((1, 2), np.float32))
    assert held.size(0) == 3_000_002


def test_a_generation_that_was_deleted_under_a_reader_is_no_generation_without_rows(tmp_path):
    write(tmp_path, np.arange(9, dtype=np.int64), np.ones((9, 1), np.float32))
    held = reader(tmp_path)
    absent = np.array([100], np.int64)
    assert rows_of(held, absent)[1].tolist() == [0]
    records = _native.LmdbRecords(str(tmp_path), create=False)
    records.swap_all([("whole/g1", "[]", None)])
    ((_, _, states),), failure, said = held.read([(0, absent)])
    assert (states.tolist(), failure) == ([2], 15)
    assert "generation g1 was deleted" in said


def test_a_table_is_dropped_whole_and_not_while_it_is_open(tmp_path):
    write(tmp_path, np.arange(9, dtype=np.int64), np.ones((9, 1), np.float32))
    held = reader(tmp_path)
    with pytest.raises(FailedPreconditionError, match="in use"):
        _native.drop_lmdb_table(str(tmp_path), "g1", "t")
    held.close()
    for _ in range(2):
        _native.drop_lmdb_table(str(tmp_path), "g1", "t")
    with pytest.raises(NotFoundError, match="no table t of generation g1"):
        reader(tmp_path)


def test_records_change_only_when_they_are_as_expected(tmp_path):
    records = _native.LmdbRecords(str(tmp_path), create=True)
    assert records.swap_all([("a/1", None, "x")])
    assert not records.swap_all([("a/1", None, "y")])
    assert records.swap_all([("a/1", "x", "y")])
    assert records.get("a/1") == "y"
    assert records.swap_all([("a/2", None, "z")])
    assert records.swap_all([("b", None, "z")])
    assert records.names("a/") == ["a/1", "a/2"]
    assert records.swap_all([("a/1", "y", None)])
    assert records.get("a/1") is None
    assert not records.swap_all([("absent", "y", None)])
    assert records.swap_all([("absent", None, None)])
    assert [records.next_number() for _ in range(3)] == [1, 2, 3]


def test_a_reader_that_is_closed_while_it_works_ends_in_peace(tmp_path):
    keys = np.arange(300_000, dtype=np.int64)
    write(tmp_path, keys, np.ones((len(keys), 2), np.float32))
    r = reader(tmp_path)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        digests = pool.submit(r.digests, 0)
        r.close()
    # It ran before the reader was closed, or it says so.
    assert "closed" in str(digests.exception()) or digests.result()[:, 0].sum() == len(keys)
    with pytest.raises(ValueError, match="closed"):
        r.read([(0, keys)])


def test_a_scan_of_more_rows_than_there_are_gives_all(tmp_path):
    write(tmp_path, np.arange(3, dtype=np.int64), np.ones((3, 2), np.float32))
    assert len(reader(tmp_path).scan(0, None, 2**64 - 1)[0]) == 3
