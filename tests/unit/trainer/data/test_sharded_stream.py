"""Ranks that read their own parts of the files read every row once."""

from __future__ import annotations

import gzip
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.config import RunConfig
from hotrow.trainer.data import Batch, BatchStream, DataError, Part, lines, parquet, shards
from hotrow.trainer.data.sharded_stream import Leg, ShardedStream
from hotrow.trainer.data.shards import shards_of

ROWS = 500
BATCH = 24


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows with their number as a key, in each format."""
    folder = tmp_path_factory.mktemp("shards")
    rows = [(i % 2, i, "x" * (i % 37)) for i in range(ROWS)]
    csv = [f"{label},{i},{text}" for label, i, text in rows]
    (folder / "a.csv").write_text("\n".join(["label,id,name", *csv]))
    (folder / "crlf.csv").write_text("\r\n".join(["label,id,name", *csv, ""]), newline="")
    quoted = [f'{label},{i},"{text}"' for label, i, text in rows]
    (folder / "quoted.csv").write_text("\n".join(["label,id,name", *quoted, ""]))
    (folder / "a.libsvm").write_text("".join(f"{label} {i}:1 # {t}\n" for label, i, t in rows))
    empty = ["\t".join("" for _ in range(n)) for n in (13, 25)]
    criteo = [f"{label}\t{empty[0]}\t{i}\t{empty[1]}\n" for label, i, _ in rows]
    (folder / "a.tsv").write_text("".join(criteo))
    for number in range(5):
        part = "".join(criteo[number * 100 : (number + 1) * 100]).encode()
        (folder / f"{number}.tsv.gz").write_bytes(gzip.compress(part))
    table = pa.table({"label": [r[0] for r in rows], "id": [r[1] for r in rows]})
    with pq.ParquetWriter(folder / "a.parquet", table.schema) as writer:
        start = 0
        for size in (1, 200, 30, 99, 170):
            writer.write_table(table.slice(start, size), row_group_size=size)
            start += size
    return folder


def config_of(name: str, window: int = 60, **data: Any) -> RunConfig:
    kind = name.rpartition(".")[2].replace("tsv", "criteo").replace("gz", "criteo")
    column = {"criteo": "C1", "libsvm": "ids"}.get(kind, "id")
    return RunConfig.model_validate(
        {
            "name": "s",
            "data": {"format": kind, "train": "-", "batch_size": BATCH, **data},
            "features": {"sparse": {"columns": [column], "dim": 2, "hash": False}},
            "model": {"arch": "logistic"},
            "train": {"shuffle_buffer": window},
        }
    )


def ids(batch: Batch) -> list[int]:
    (keys,) = batch.sparse.values()
    assert batch.labels is not None
    np.testing.assert_array_equal(batch.labels, keys.keys % 2)
    return [int(key) for key in keys.keys]


def batches_of(
    paths: list[Path],
    config: RunConfig,
    ranks: int,
    start: int = 0,
    *,
    seed: int | None = 3,
    epoch: int = 0,
    legs: tuple[Leg, ...] = (),
) -> list[list[list[int]]]:
    """Returns the ids of each batch of each rank, up to the first batch without rows."""
    began = shards_of(paths, legs[0][0] if legs else ranks)
    streams = [
        ShardedStream(paths, config, began, Part(r, ranks), seed, start, epoch=epoch, legs=legs)
        for r in range(ranks)
    ]
    return [
        [ids(batch) for batch in takewhile(lambda batch: batch.size, stream)] for stream in streams
    ]


def flat(batches: list[list[list[int]]]) -> list[int]:
    return [key for of_rank in batches for batch in of_rank for key in batch]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "TEXT_BYTES", 1500)
    monkeypatch.setattr(shards, "PARQUET_ROWS", 1)
    monkeypatch.setattr(parquet, "BATCH_ROWS", 64)
    monkeypatch.setattr(lines.line_blocks, "__defaults__", (0, 400, None, None))


NAMES = pytest.mark.parametrize(
    "name",
    ["a.csv", "crlf.csv", "quoted.csv", "a.libsvm", "a.tsv", "*.tsv.gz", "a.parquet"],
)


@NAMES
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_row_is_read_once(files: Path, name: str, ranks: int) -> None:
    paths, config = sorted(files.glob(name)), config_of(name)
    for seed in (None, 3):
        found = batches_of(paths, config, ranks, seed=seed)
        assert sorted(flat(found)) == list(range(ROWS))
        sizes = [Part(r, ranks).rows_of(BATCH) for r in range(ranks)]
        for of_rank, size in zip(found, sizes, strict=True):
            assert {len(batch) for batch in of_rank[:-1]} <= {size}
    if "gz" not in name:
        read = [sum(map(len, of_rank)) for of_rank in found]
        assert max(read) - min(read) <= 50  # the file has bytes, not rows, to divide
    if name == "a.parquet":
        assert max(read) - min(read) <= 1


@NAMES
@pytest.mark.parametrize("start", [1, 4, 9, 60])
@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_the_batches_after_a_resumption_are_those_of_an_uninterrupted_epoch(
    files: Path, name: str, start: int, policy: str
) -> None:
    paths, config = sorted(files.glob(name)), config_of(name, on_malformed=policy)
    for seed in (None, 3):
        whole = batches_of(paths, config, 2, seed=seed, epoch=1)
        rest = batches_of(paths, config, 2, start, seed=seed, epoch=1)
        assert rest == [of_rank[start:] for of_rank in whole]


def test_a_seed_and_an_epoch_have_their_own_order(files: Path) -> None:
    paths, config = [files / "a.csv"], config_of("a.csv")
    one = batches_of(paths, config, 2)
    assert batches_of(paths, config, 2) == one
    assert batches_of(paths, config, 2, epoch=1) != one
    assert batches_of(paths, config, 2, seed=4) != one


def test_one_rank_has_the_order_of_one_process(files: Path) -> None:
    paths, config = [files / "a.tsv"], config_of("a.tsv")
    (found,) = batches_of(paths, config, 1, seed=None)
    assert found == [ids(batch) for batch in BatchStream(paths, config)]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
@pytest.mark.parametrize(
    "legs",
    [
        ((2, 5), (3, 100)),
        ((3, 4), (1, 100)),
        ((1, 7), (4, 100)),
        ((4, 3), (2, 4), (3, 5), (1, 100)),
        ((2, 8), (3, 2), (2, 100)),
        ((3, 1), (4, 12), (2, 100)),
    ],
    ids=str,
)
def test_every_row_is_read_once_by_changing_numbers_of_ranks(
    files: Path, name: str, legs: tuple[Leg, ...]
) -> None:
    paths, config = [files / name], config_of(name)
    for seed in (None, 3):
        read: list[int] = []
        for number, (ranks, batches) in enumerate(legs):
            found = batches_of(paths, config, ranks, seed=seed, legs=legs[:number])
            read += flat([of_rank[:batches] for of_rank in found])
            rest = batches_of(paths, config, ranks, 2, seed=seed, legs=legs[:number])
            assert rest == [of_rank[2:] for of_rank in found]
            # Those that have rows have all of a batch.
            assert sum(len(of_rank[0]) for of_rank in found if of_rank) == BATCH or number > 1
        assert sorted(read) == list(range(ROWS))


def test_a_rank_without_rows_has_empty_batches(files: Path) -> None:
    paths, config = [files / "0.tsv.gz"], config_of("0.tsv.gz")
    stream = iter(ShardedStream(paths, config, shards_of(paths, 2), Part(1, 2)))
    for _ in range(3):
        batch = next(stream)
        assert (batch.size, ids(batch)) == (0, [])


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.libsvm", "a.parquet"])
def test_a_malformed_row_is_reported_with_its_number_in_the_file(
    files: Path, tmp_path: Path, name: str
) -> None:
    path, expected = tmp_path / name, "row 445"
    if name == "a.parquet":
        table = pq.read_table(files / name)
        bad = table["label"].to_pylist()
        bad[444] = 7
        table = table.set_column(0, "label", pa.array(bad))
        pq.write_table(table, path, row_group_size=120)
    else:
        text = (files / name).read_text().split("\n")
        text[444] = "7" + text[444][1:]
        path.write_text("\n".join(text))
        expected = "line 445"
    found = []
    for rank in range(3):
        config = config_of(name)
        stream = ShardedStream([path], config, shards_of([path], 3), Part(rank, 3))
        try:
            list(takewhile(lambda batch: batch.size, stream))
        except DataError as err:
            found.append(str(err))
    (message,) = found
    assert f"{name}: {expected}: label is" in message

    config = config_of(name, on_malformed="skip")
    streams = [ShardedStream([path], config, shards_of([path], 3), Part(r, 3)) for r in range(3)]
    rows = [len(ids(b)) for s in streams for b in takewhile(lambda batch: batch.size, s)]
    assert sum(rows) == ROWS - 1 == sum(stream.rows for stream in streams)
    (seen,) = [stream.malformed for stream in streams if stream.malformed.count]
    assert (seen.count, seen.first_line, seen.path) == (1, 445, str(path))
