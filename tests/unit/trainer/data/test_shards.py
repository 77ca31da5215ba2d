"""How files are divided among ranks."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.errors import NotFoundError
from hotrow.trainer.data import shards
from hotrow.trainer.data.piece import Piece
from hotrow.trainer.data.shards import Shard, as_text, shards_of

Write = Callable[..., Path]


def parquet(path: Path, groups: list[int]) -> Path:
    """Writes a file with row groups of these sizes."""
    schema = pa.schema([("id", pa.int64())])
    with pq.ParquetWriter(path, schema) as writer:
        for rows in groups:
            writer.write_table(pa.table({"id": range(rows)}, schema), row_group_size=max(rows, 1))
    return path


def spans(found: list[Shard]) -> list[list[tuple[int, int] | None]]:
    return [[piece.span for piece in shard.pieces] for shard in found]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "PARQUET_ROWS", 10)


def test_small_row_groups_are_one_piece(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [4, 5, 6, 10, 9])
    assert spans(shards_of([path], 1)) == [[(0, 15), (15, 25), (25, 34)]]


def test_row_groups_are_dealt_in_their_order_and_the_last_are_cut(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [10, 10, 10, 10, 10])
    assert spans(shards_of([path], 2)) == [
        [(0, 10), (20, 30), (40, 45)],
        [(10, 20), (30, 40), (45, 50)],
    ]
    assert spans(shards_of([path], 1)) == [[(0, 10), (10, 20), (20, 30), (30, 40), (40, 50)]]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "groups", [[100], [1, 99], [50, 0, 3, 47], [7] * 13, [2]], ids=lambda groups: str(groups[:4])
)
def test_each_row_is_in_one_shard_and_shards_are_equal(
    tmp_path: Path, groups: list[int], count: int
) -> None:
    path = parquet(tmp_path / "a.parquet", groups)
    found = shards_of([path], count)
    assert [shard.number for shard in found] == list(range(count))
    rows = [[i for a, b in own if (a, b) for i in range(a, b)] for own in spans(found)]
    assert sorted(chain.from_iterable(rows)) == list(range(sum(groups)))
    assert max(map(len, rows)) - min(map(len, rows)) <= 1
    assert all(own == sorted(own) for own in rows)


def test_text_is_cut_into_ranges_of_bytes(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "TEXT_BYTES", 40)
    paths = [write("a.tsv", b"x" * 100), write("empty.tsv", ""), write("b.tsv", b"x" * 8)]
    assert [shard.pieces for shard in shards_of(paths, 2)] == [
        (Piece(paths[0], (0, 40)), Piece(paths[0], (80, 94))),
        (Piece(paths[0], (40, 80)), Piece(paths[0], (94, 100)), Piece(paths[2], (0, 8))),
    ]


def test_compressed_text_is_not_cut(write: Write) -> None:
    paths = [write(f"{i}.tsv.gz", gzip.compress(b"0\t1\n" * 10)) for i in range(3)]
    pieces = [list(shard.pieces) for shard in shards_of(paths, 2)]
    assert pieces == [[Piece(paths[0]), Piece(paths[2])], [Piece(paths[1])]]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("no.parquet", "no.tsv"):
        with pytest.raises(NotFoundError, match=f"data file .*{name} does not exist"):
            shards_of([tmp_path / name], 2)


def test_the_text_of_shards_changes_with_the_files(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [10, 10])
    before = as_text(shards_of([path], 2))
    assert as_text(shards_of([path], 2)) == before
    parquet(path, [10, 12])
    assert as_text(shards_of([path], 2)) != before
