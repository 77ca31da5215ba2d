"""The embedded store: rows in LMDB, read by several environments of several processes."""

from __future__ import annotations

import subprocess
import sys

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
    for keys, lines, _ in table.export_batches():
        write(tmp_path, keys, np.ascontiguousarray(lines[:, :2]))
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
