"""Pages of tables in Redis."""

from __future__ import annotations

import pytest

from hotrow import _native
from hotrow.store.redis.layout import PagedTable, mean_rows_of_page, pages_of
from hotrow.store.redis.parcel import packed, unpacked
from hotrow.store.spec import Generation, StoredTable


def paged(row_type: str = "float32", dim: int = 16, pages: int = 5000) -> PagedTable:
    table = StoredTable(
        name="t", dim=dim, row_type=row_type, default_value=0.0, rows=1, pages=pages
    )
    generation = Generation(
        generation="a" * 32,
        number=4097,
        model="m",
        version=1,
        step=1,
        source="s",
        state="writing",
        schema_hash="",
        created_ms=0,
        epoch=1,
        seq=1,
        tables=(table,) * 70,
    )
    return PagedTable(generation, 65)


def test_names_are_those_of_the_native_core() -> None:
    table = paged()
    markers, _ = _native.store_names(256, 4097)
    for first in (0, 4090):
        names = table.names(7, first, 100)
        assert names == [table.name(markers[7], first + i) for i in range(100)]
    assert len(table.names(7, 4990, 100)) == 10
    assert [first for first, _ in table.pieces(7, 2000)] == [0, 2000, 4000]


@pytest.mark.parametrize("row_type", ["float32", "bfloat16", "float16", "int8"])
def test_a_record_is_as_long_as_the_native_core_makes_it(row_type: str) -> None:
    import numpy as np

    rows = _native.encode_rows(row_type, np.zeros((1, 5), np.float32))
    assert paged(row_type, 5).record_bytes == 16 + rows.shape[1]


def test_small_records_share_a_page_with_more_than_large_ones() -> None:
    means = [mean_rows_of_page(size) for size in (24, 80, 272, 1040, 100_000)]
    assert means == sorted(means, reverse=True)
    assert means[1] == 6
    assert means[2] == pytest.approx(3.5, abs=0.02)
    assert means[4] == 1


def test_every_table_has_a_page_in_each_shard() -> None:
    assert pages_of(80, 0, 256) == 1
    assert pages_of(80, 1_000_000, 256) == 652
    assert pages_of(100_000, 1000, 1) == 1000


def test_commands_are_read_back_as_they_were_packed() -> None:
    commands = [[b"SET", b"a\r\n", b"", b"*1\r\n$1\r\n"], [b"GET", b"x"]]
    assert list(unpacked(b"".join(packed(*command) for command in commands))) == commands
    assert list(unpacked(packed("SET", 12, "é"))) == [[b"SET", b"12", "é".encode()]]
