"""Opening data files: names, missing columns, first lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hotrow.config import DataConfig, FeaturesConfig
from hotrow.errors import InvalidArgumentError, NotFoundError
from hotrow.trainer.data import Column, ColumnKind, DataError, open_data

Write = Callable[..., Path]
CSV = DataConfig(format="csv", train="-")


def test_without_features_every_column_is_read(write: Write) -> None:
    assert open_data(write("a.csv", "b, a,label\n1,2,0\n"), CSV).columns == (
        Column("b", ColumnKind.TEXT),
        Column("a", ColumnKind.TEXT),
    )
    kinds = {
        c.kind
        for c in open_data(
            write("a.tsv", "\t" * 39), DataConfig(format="criteo", train="-")
        ).columns
    }
    assert kinds == {ColumnKind.NUMBER, ColumnKind.TEXT}


def test_a_missing_column_is_named_with_the_nearest(write: Write) -> None:
    features = FeaturesConfig.model_validate({"dense": {"columns": ["aage"]}})
    with pytest.raises(InvalidArgumentError, match=r"'aage' \(did you mean 'age'\?\); it has: age"):
        open_data(write("a.csv", "age,label\n1,0\n"), CSV, features)


def test_the_label_is_no_input(write: Write) -> None:
    columns = [Column("label", ColumnKind.NUMBER)]
    with pytest.raises(InvalidArgumentError, match="has no column 'label'"):
        open_data(write("a.csv", "age,label\n1,0\n"), CSV, columns=columns)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("empty.tsv", {"format": "criteo"}, "is empty; a data file has at least one line"),
        ("empty.tsv", {"format": "libsvm"}, "is empty; a data file has at least one line"),
        ("header_twice.csv", {"format": "csv"}, "line 1: the header names 'a' 2 times"),
        (
            "csv_short_line.csv",
            {"format": "csv", "columns": ["a", "label"]},
            "data.columns names 2 columns, but the first line has 3 fields",
        ),
        ("csv_short_line.csv", {"format": "csv", "label": "y"}, "has no label column 'y'"),
        ("not_gzip.tsv.gz", {"format": "criteo"}, "is not gzip data"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_when_it_is_opened(
    rejected: Path, name: str, data: dict[str, object], message: str
) -> None:
    config = DataConfig.model_validate({"train": "-"} | data)
    with pytest.raises(DataError, match=re.escape(message)):
        open_data(rejected / name, config, require_labels=True)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"none.csv does not exist"):
        open_data(tmp_path / "none.csv", CSV)


@pytest.mark.parametrize(
    ("batch_size", "limit", "message"),
    [(0, None, "batch_size is 0; it must be at least 1"), (1, 0, "limit is 0")],
)
def test_batches_need_at_least_one_row(
    write: Write, batch_size: int, limit: int | None, message: str
) -> None:
    file = open_data(write("a.csv", "a,label\n1,0\n"), CSV)
    with pytest.raises(InvalidArgumentError, match=message):
        next(file.raw_batches(batch_size, limit))


def test_a_limit_ends_a_pass_early(write: Write) -> None:
    file = open_data(write("a.csv", "a,label\n" + "1,0\n" * 10 + "broken\n"), CSV)
    with pytest.raises(DataError, match="line 12: 1 fields, not 2"):
        list(file.raw_batches(4))
    big = open_data(write("b.csv", "a,label\n" + "1,0\n" * 10), CSV)
    assert [batch.size for batch in big.raw_batches(4, limit=7)] == [4, 3]


def test_a_column_that_is_dense_and_bucketized_is_read_once(write: Write) -> None:
    features = FeaturesConfig.model_validate(
        {"dense": {"columns": ["a"]}, "sparse": {"columns": ["a"], "dim": 1, "buckets": "log"}}
    )
    file = open_data(write("a.csv", "a,label\n1,0\n"), CSV, features)
    assert file.columns == (Column("a", ColumnKind.NUMBER),)
