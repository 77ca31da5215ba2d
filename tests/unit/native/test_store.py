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
from hotrow.errors import DataLossError, NotFoundError, UnavailableError


def write(path, keys, rows, generation="g1", table="t"):
    writer = _native.StoreWriter(str(path), generation, table, rows.shape[1])
    writer.put(keys, rows)
    writer.close()


def reader(path, generation="g1", table="t", width=2, **options):
    return _native.StoreReader(str(path), generation, table, width, **options)


@settings(deadline=None, max_examples=25)
@given(keys=st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1, max_size=50))
def test_every_row_is_read_back_and_unknown_keys_read_the_default(tmp_path_factory, keys):
    path = tmp_path_factory.mktemp("store")
    keys = np.array(keys, np.int64)
    rows = np.random.default_rng(0).normal(size=(len(keys), 2)).astype(np.float32)
    half = len(keys) // 2
    write(path, keys[half:], rows[half:])
    read, unknown = reader(path, default_value=9.0).read(keys)
    np.testing.assert_array_equal(read[half:], rows[half:])
    np.testing.assert_array_equal(read[:half], np.full((half, 2), 9.0, np.float32))
    assert unknown == half


def test_a_scan_gives_every_row_once_in_pieces(tmp_path):
    keys = np.arange(-50, 50, dtype=np.int64)
    rows = np.repeat(keys[:, None], 2, axis=1).astype(np.float32)
    write(tmp_path, keys, rows)
    r = reader(tmp_path)
    after, seen = None, []
    while True:
        got, values = r.scan(after, 7)
        if len(got) == 0:
            break
        np.testing.assert_array_equal(values[:, 0], got.astype(np.float32))
        seen += got.tolist()
        after = int(got[-1])
    assert sorted(seen) == keys.tolist()


def test_generations_and_tables_do_not_meet(tmp_path):
    key = np.zeros(1, np.int64)
    for generation in ("g1", "g2"):
        for table in ("a", "b/wide"):
            value = float(hash((generation, table)) % 97)
            write(tmp_path, key, np.full((1, 2), value, np.float32), generation, table)
            read, _ = reader(tmp_path, generation, table).read(key)
            assert read[0, 0] == value
    with pytest.raises(NotFoundError, match="no table a of generation g3"):
        reader(tmp_path, "g3", "a")


def test_a_row_of_another_width_is_reported_as_damage(tmp_path):
    write(tmp_path, np.zeros(1, np.int64), np.zeros((1, 2), np.float32))
    with pytest.raises(DataLossError, match="the row of key 0 has 8 bytes; width 3 needs 12"):
        reader(tmp_path, width=3).read(np.zeros(1, np.int64))


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
    assert reader(tmp_path).digest() == table.digest(weights_only=True)


def test_a_reader_sees_what_another_process_writes_even_past_its_map(tmp_path):
    write(tmp_path, np.zeros(1, np.int64), np.ones((1, 2), np.float32))
    r = reader(tmp_path)
    assert r.size == 1
    program = (
        "import sys, numpy as np; from hotrow import _native\n"
        "w = _native.StoreWriter(sys.argv[1], 'g1', 't', 2)\n"
        "for i in range(30):\n"
        "    k = np.arange(1, 100001, dtype=np.int64) + i * 100000\n"
        "    w.put(k, np.ones((100000, 2), np.float32))\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert r.size == 3_000_001


def test_a_process_may_write_a_store_that_it_reads(tmp_path):
    write(tmp_path, np.zeros(1, np.int64), np.ones((1, 2), np.float32))
    r = reader(tmp_path)
    write(tmp_path, np.ones(1, np.int64), np.ones((1, 2), np.float32))
    assert r.size == 2


def test_files_replaced_under_an_open_store_are_another_store(tmp_path):
    store, other = tmp_path / "store", tmp_path / "other"
    key = np.zeros(1, np.int64)
    write(store, key, np.ones((1, 2), np.float32))
    write(other, key, np.full((1, 2), 2.0, np.float32))
    old = reader(store)
    (other / "data.mdb").replace(store / "data.mdb")
    new = reader(store)
    assert (old.read(key)[0][0, 0], new.read(key)[0][0, 0]) == (1.0, 2.0)


def test_a_writer_is_not_kept_out_by_readers_that_never_pause(tmp_path):
    write(tmp_path, np.zeros(1, np.int64), np.ones((1, 2), np.float32))
    stop = threading.Event()

    def read_on():
        r = reader(tmp_path)
        keys = np.arange(100, dtype=np.int64)
        while not stop.is_set():
            r.read(keys)

    threads = [threading.Thread(target=read_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        writer = _native.StoreWriter(str(tmp_path), "g1", "t", 2)
        for i in range(5):  # each grows the map
            keys = np.arange(1_000_000, dtype=np.int64) + i * 1_000_000
            writer.put(keys, np.ones((len(keys), 2), np.float32))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert reader(tmp_path).size == 5_000_000


def test_random_writes_into_a_full_map_make_it_grow(tmp_path):
    rng = np.random.default_rng(1)
    keys = rng.permutation(2_000_000).astype(np.int64) * 7919
    write(tmp_path, keys, np.ones((len(keys), 1), np.float32))
    for _ in range(5):
        some = rng.choice(keys, 65536, replace=False)
        write(tmp_path, some, np.zeros((len(some), 1), np.float32))
    assert reader(tmp_path, width=1).size == len(keys)


def test_a_writer_follows_a_map_that_another_process_has_grown(tmp_path):
    write(tmp_path, np.zeros(1, np.int64), np.ones((1, 2), np.float32))
    held = reader(tmp_path)
    program = (
        "import sys, numpy as np; from hotrow import _native\n"
        "k = np.arange(1, 3000001, dtype=np.int64)\n"
        "_native.StoreWriter(sys.argv[1], 'g1', 't', 2).put(k, np.ones((len(k), 2), np.float32))\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    write(tmp_path, np.array([-1], np.int64), np.ones((1, 2), np.float32))
    assert held.size == 3_000_002


def test_more_tables_than_can_be_open_are_listed(tmp_path):
    for i in range(2100):
        _native.StoreWriter(str(tmp_path), f"g{i}", "t", 1).close()
    entries = _native.list_store(str(tmp_path))
    assert len(entries) == 2100
    assert {rows for _, _, rows in entries} == {0}


def test_a_reader_that_is_closed_while_it_works_ends_in_peace(tmp_path):
    keys = np.arange(300_000, dtype=np.int64)
    write(tmp_path, keys, np.ones((len(keys), 2), np.float32))
    r = reader(tmp_path)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        digest = pool.submit(r.digest)
        r.close()
    # It ran before the reader was closed, or it says so.
    assert "closed" in str(digest.exception()) or len(digest.result()) == 32
    with pytest.raises(ValueError, match="closed"):
        r.read(keys)


def test_a_scan_of_more_rows_than_there_are_gives_all(tmp_path):
    write(tmp_path, np.arange(3, dtype=np.int64), np.ones((3, 2), np.float32))
    assert len(reader(tmp_path).scan(None, 2**64 - 1)[0]) == 3
