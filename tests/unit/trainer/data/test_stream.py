"""The batches of an epoch: sizes, order, resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotrow.config import RunConfig
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data import Batch, BatchStream, DataError, Malformed, Part

Write = Callable[..., Path]


def config(window: int = 1000, **data: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "stream",
            "data": {"format": "csv", "train": "-", "batch_size": 8} | data,
            "features": {
                "dense": {"columns": ["x"]},
                "sparse": [
                    {"columns": ["id"], "dim": 2, "hash": False},
                    {"columns": ["tags"], "dim": 2, "separator": "|", "hash": False},
                ],
            },
            "model": {"arch": "logistic"},
            "train": {"shuffle_buffer": window},
        }
    )


@pytest.fixture
def hundred(write: Write) -> Path:
    lines = [f"{i},{i},{'|'.join([str(i)] * (i % 3))},{i % 2}" for i in range(100)]
    return write("hundred.csv", "x,id,tags,label\n" + "\n".join(lines) + "\n")


def check_rows(batches: list[Batch]) -> list[int]:
    """Checks that every row is whole and returns the ids."""
    ids: list[int] = []
    for batch in batches:
        keys, tags = batch.sparse["id"].keys, batch.sparse["tags"]
        np.testing.assert_array_equal(batch.dense[:, 0], keys.astype(np.float32))
        np.testing.assert_array_equal(batch.labels, (keys % 2).astype(np.float32))
        assert tags.row_splits is not None
        np.testing.assert_array_equal(np.diff(tags.row_splits), keys % 3)
        np.testing.assert_array_equal(tags.keys, np.repeat(keys, keys % 3))
        ids += keys.tolist()
    return ids


def test_without_a_seed_the_rows_come_in_file_order(hundred: Path) -> None:
    batches = list(BatchStream(hundred, config()))
    assert [batch.size for batch in batches] == [8] * 12 + [4]
    assert check_rows(batches) == list(range(100))


def test_the_last_smaller_batch_can_be_left_out(hundred: Path) -> None:
    stream = BatchStream(hundred, config(), drop_last=True)
    assert [batch.size for batch in stream] == [8] * 12


def test_a_limit_reads_only_the_first_rows(hundred: Path) -> None:
    stream = BatchStream(hundred, config(), shuffle_seed=1, limit=30, batch_size=7)
    batches = list(stream)
    assert [batch.size for batch in batches] == [7, 7, 7, 7, 2]
    assert sorted(check_rows(batches)) == list(range(30))


@pytest.mark.parametrize("window", [1, 5, 8, 33, 100, 1000])
def test_shuffling_keeps_every_row_and_stays_in_its_window(hundred: Path, window: int) -> None:
    ids = check_rows(list(BatchStream(hundred, config(window), shuffle_seed=3)))
    assert sorted(ids) == list(range(100))
    for start in range(0, 100, window):
        assert sorted(ids[start : start + window]) == list(range(start, min(100, start + window)))
    if window > 1:
        assert ids != list(range(100))


def test_order_depends_on_seed_and_epoch_only(hundred: Path) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return check_rows(list(BatchStream(hundred, config(40), seed, epoch=epoch)))

    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4


def test_a_stream_can_be_iterated_again(hundred: Path) -> None:
    stream = BatchStream(hundred, config(40), shuffle_seed=1)
    assert check_rows(list(stream)) == check_rows(list(stream))


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("window", [5, 32, 1000])
@pytest.mark.parametrize("start", [0, 1, 4, 5, 12, 13, 20])
def test_a_resumed_stream_continues_where_it_stopped(
    hundred: Path, seed: int | None, window: int, start: int
) -> None:
    whole = list(BatchStream(hundred, config(window), seed))
    rest = list(BatchStream(hundred, config(window), seed, start_batch=start))
    assert [batch.size for batch in rest] == [batch.size for batch in whole[start:]]
    assert check_rows(rest) == check_rows(whole[start:])


def test_resuming_counts_rows_that_could_be_read(write: Write) -> None:
    lines = [f"{i},{i},,{i % 2}" if i % 7 else "broken" for i in range(100)]
    path = write("broken.csv", "x,id,tags,label\n" + "\n".join(lines))
    stream = BatchStream(path, config(on_malformed="skip"), start_batch=3)
    legal = [i for i in range(100) if i % 7]
    assert [key for batch in stream for key in batch.sparse["id"].keys] == legal[24:]
    assert stream.malformed == Malformed(count=15, first_line=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; it must be at least 1"),
        ({"start_batch": -1}, "start_batch is -1; it must be at least 0"),
        ({"epoch": -1}, "epoch is -1; it must be at least 0"),
        ({"shuffle_seed": -1}, "shuffle_seed is -1; it must be at least 0"),
    ],
)
def test_impossible_options_are_refused(
    hundred: Path, options: dict[str, int], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        BatchStream(hundred, config(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("start", [0, 5, 11])
def test_several_files_are_read_like_one(
    hundred: Path, write: Write, seed: int | None, start: int
) -> None:
    head, *lines = hundred.read_text().splitlines()
    pieces = [lines[:37], lines[37:38], lines[38:]]
    files = [write(f"{i}.csv", "\n".join([head, *piece])) for i, piece in enumerate(pieces)]
    one = list(BatchStream(hundred, config(40), seed, start))
    several = list(BatchStream(files, config(40), seed, start))
    assert check_rows(several) == check_rows(one)
    part = list(BatchStream(files, config(40), seed, start, part=Part(1, 3)))
    assert [batch.global_size for batch in part] == [batch.size for batch in one]


def test_malformed_lines_of_several_files_are_counted_together(write: Write) -> None:
    head, legal = "x,id,tags,label", "1,1,1,1"
    files = [
        write("a.csv", "\n".join([head, legal])),
        write("b.csv", "\n".join([head, legal, "bad", "bad"])),
        write("c.csv", "\n".join([head, "bad", legal])),
    ]
    stream = BatchStream(files, config(on_malformed="skip"))
    assert sum(batch.size for batch in stream) == 3
    assert stream.malformed == Malformed(count=3, first_line=3)
    assert stream.malformed.path == str(files[1])


def test_a_file_without_labels_cannot_train(write: Write) -> None:
    path = write("a.csv", "x,id,tags\n1,2,3\n")
    with pytest.raises(DataError, match="has no label column 'label'; it has: x, id, tags"):
        BatchStream(path, config())


def test_real_criteo_rows_shuffle_and_resume(shared: Path) -> None:
    path = shared / "data/criteo_head10k/criteo_head10k.tsv.gz"
    run = RunConfig.model_validate(
        {
            "name": "criteo",
            "data": {"format": "criteo", "train": "-", "batch_size": 512},
            "features": {
                "dense": {"columns": ["I1", "I2"], "transform": "log"},
                "sparse": {"columns": ["C1", "C2"], "dim": 4},
            },
            "model": {"arch": "logistic"},
            "train": {"shuffle_buffer": 3000},
        }
    )
    whole = list(BatchStream(path, run, shuffle_seed=5, epoch=2))
    assert sum(batch.size for batch in whole) == 10_000
    assert sum(batch.labels.sum() for batch in whole if batch.labels is not None) == 2_182
    rest = list(BatchStream(path, run, shuffle_seed=5, epoch=2, start_batch=11))
    for there, here in zip(whole[11:], rest, strict=True):
        np.testing.assert_array_equal(there.dense, here.dense)
        np.testing.assert_array_equal(there.sparse["C2"].keys, here.sparse["C2"].keys)
        np.testing.assert_array_equal(there.labels, here.labels)
