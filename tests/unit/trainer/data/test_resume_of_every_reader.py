"""Streams from a batch on, and those of ranks, give the rows of a whole one, for every reader."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotrow.cli.main import main
from hotrow.config import RunConfig
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data import Batch, BatchStream, Part, lines, parquet, stream
from hotrow.trainer.data.batch_rows import join_batches
from hotrow.trainer.data.encode import encode

ROWS = 400
CRITEO = {
    "dense": {"columns": ["I1", "I2"], "transform": "log"},
    "sparse": {"columns": ["C1", "C9"], "dim": 2},
}
CSV = {
    "dense": {"columns": ["x"]},
    "sparse": [
        {"columns": ["id"], "dim": 2, "hash": False},
        {"columns": ["tags"], "dim": 2, "separator": "|", "hash": False},
        {"columns": ["name"], "dim": 2},
    ],
}
LIBSVM = {"sparse": {"columns": ["ids"], "dim": 2, "hash": False}}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of each format with some malformed lines, and all of them as Parquet."""
    folder = tmp_path_factory.mktemp("readers")
    assert main(["data", "generate", str(folder / "a.tsv.gz"), "--rows", str(ROWS)]) == 0
    draw = random.Random(3)
    with (folder / "a.csv").open("w") as csv, (folder / "a.libsvm").open("w") as libsvm:
        csv.write("x,id,tags,name,label\n")
        for i in range(ROWS):
            tags = "|".join(str(draw.randrange(99)) for _ in range(draw.randrange(4)))
            pairs = (f"{draw.randrange(999)}:{draw.random():.3f}" for _ in range(draw.randrange(5)))
            legal = draw.random() > 0.01
            csv.write(f"{i / 2},{i},{tags},n {i % 7},{i % 2}\n" if legal else 'bro"ken,1\n')
            libsvm.write(f"{i % 2} {' '.join(pairs)}\n" if legal else "7 x\n")
    for name, options in (("a.tsv.gz", []), ("a.csv", []), ("a.libsvm", ["--weights"])):
        converted = str(folder / f"{name}.parquet")
        skip = ["--on-malformed", "skip"]
        assert main(["data", "convert", str(folder / name), converted, *skip, *options]) == 0
    return folder


def arrays(batch: Batch) -> list[Any]:
    fields = ("keys", "row_splits", "weights")
    keys = [getattr(part, field) for part in batch.sparse.values() for field in fields]
    return [batch.dense, batch.labels, *keys]


ORDERS = pytest.mark.parametrize(
    ("seed", "window"),
    [(None, 131), (5, 50), (5, 10_000)],
    ids=["in order", "shuffled in windows", "shuffled as a whole"],
)
READERS = pytest.mark.parametrize(
    ("name", "features", "options"),
    [
        pytest.param("a.tsv.gz", CRITEO, {"format": "criteo"}, id="Criteo"),
        pytest.param("a.csv", CSV, {"format": "csv"}, id="CSV"),
        pytest.param("a.libsvm", LIBSVM, {"format": "libsvm"}, id="LibSVM"),
        pytest.param(
            "a.libsvm", LIBSVM, {"format": "libsvm", "weights": True}, id="LibSVM with weights"
        ),
        pytest.param("a.tsv.gz.parquet", CRITEO, {"format": "criteo"}, id="Parquet of Criteo"),
        pytest.param("a.csv.parquet", CSV, {"format": "csv"}, id="Parquet of CSV"),
        pytest.param(
            "a.libsvm.parquet",
            LIBSVM,
            {"format": "libsvm", "weights": True},
            id="Parquet of LibSVM",
        ),
    ],
)


def run_of(
    monkeypatch: pytest.MonkeyPatch, features: dict[str, Any], options: dict[str, Any], window: int
) -> RunConfig:
    # Blocks much smaller than a window, so that batches begin and end inside of them.
    monkeypatch.setattr(lines.line_blocks, "__defaults__", (0, 3500, None, None))
    monkeypatch.setattr(parquet, "BATCH_ROWS", 97)
    return RunConfig.model_validate(
        {
            "name": "s",
            "data": {"train": "-", "batch_size": 24, "on_malformed": "skip", **options},
            "features": features,
            "model": {"arch": "logistic"},
            "train": {"shuffle_buffer": window},
        }
    )


def assert_equal(one: Batch, other: Batch) -> None:
    for before, after in zip(arrays(one), arrays(other), strict=True):
        np.testing.assert_array_equal(before, after)


@ORDERS
@READERS
def test_the_batches_after_a_resumption_are_those_of_an_uninterrupted_epoch(
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    features: dict[str, Any],
    options: dict[str, Any],
    window: int,
    seed: int | None,
) -> None:
    config = run_of(monkeypatch, features, options, window)
    whole = list(BatchStream(files / name, config, seed, epoch=2))
    assert len(whole) > 15
    for start in (0, 1, 4, 7, len(whole) - 1, len(whole) + 3):
        rest = list(BatchStream(files / name, config, seed, start, epoch=2))
        assert len(rest) == max(0, len(whole) - start)
        for one, other in zip(whole[start:], rest, strict=True):
            assert_equal(one, other)


@ORDERS
@READERS
@pytest.mark.parametrize("ranks", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 5))])
def test_the_parts_of_all_ranks_are_the_batches_of_one_process(
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    features: dict[str, Any],
    options: dict[str, Any],
    window: int,
    seed: int | None,
    ranks: int,
) -> None:
    config = run_of(monkeypatch, features, options, window)
    encoded: list[int] = []

    def counting(raw: Any, columns: Any) -> Batch:
        encoded.append(raw.size)
        return encode(raw, columns)

    for start in (0, 5):
        whole = list(BatchStream(files / name, config, seed, start, epoch=2))
        with monkeypatch.context() as patch:
            patch.setattr(stream, "encode", counting)
            parts = [
                list(BatchStream(files / name, config, seed, start, epoch=2, part=Part(r, ranks)))
                for r in range(ranks)
            ]
        assert sum(encoded) == sum(batch.size for batch in whole)
        encoded.clear()
        assert_parts(whole, parts)


def assert_parts(whole: list[Batch], parts: list[list[Batch]]) -> None:
    ranks = len(parts)
    for batch, *slices in zip(whole, *parts, strict=True):
        assert {part.global_size for part in slices} == {batch.size}
        assert [part.size for part in slices] == [
            (r + 1) * batch.size // ranks - r * batch.size // ranks for r in range(ranks)
        ]
        assert_equal(batch, join_batches(slices))


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize(("name", "features"), [("a.csv", CSV), ("a.libsvm", LIBSVM)])
def test_more_ranks_than_rows_of_a_batch_get_empty_parts(
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    features: dict[str, Any],
    seed: int | None,
) -> None:
    config = run_of(monkeypatch, features, {"format": name[2:]}, 131)
    whole = list(BatchStream(files / name, config, seed, limit=60))
    parts = [
        list(BatchStream(files / name, config, seed, limit=60, part=Part(r, 29))) for r in range(29)
    ]
    assert_parts(whole, parts)


@pytest.mark.parametrize("seed", [None, 5])
def test_parts_of_a_limit_and_without_a_last_smaller_batch(files: Path, seed: int | None) -> None:
    config = RunConfig.model_validate(
        {
            "name": "s",
            "data": {"format": "csv", "train": "-", "batch_size": 32, "on_malformed": "skip"},
            "features": CSV,
            "model": {"arch": "logistic"},
        }
    )
    parts = [
        list(
            BatchStream(files / "a.csv", config, seed, limit=90, drop_last=True, part=Part(rank, 3))
        )
        for rank in range(3)
    ]
    assert [[part.size for part in batches] for batches in parts] == [[10, 10], [11, 11], [11, 11]]


@pytest.mark.parametrize(("rank", "size"), [(-1, 2), (2, 2), (0, 0)])
def test_a_part_that_no_rank_has_is_refused(rank: int, size: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"part {rank} of {size}; must be in"):
        Part(rank, size)
