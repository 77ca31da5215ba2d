"""List columns of Parquet files that other programs wrote: any number of values a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.config import DataConfig, FeaturesConfig, RunConfig
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data import (
    Column,
    ColumnKind,
    DataError,
    Malformed,
    Ragged,
    encode,
    open_data,
)
from hotrow.trainer.data.encode import fingerprint_keys
from hotrow.trainer.data.list_columns import with_list_columns
from hotrow.trainer.data.stored_columns import stored_columns

PARQUET = DataConfig(format="parquet", train="-")


def write(folder: Path, **columns: Any) -> Path:
    """Writes rows with labels 1, 0, 1, ..."""
    rows = len(next(iter(columns.values())))
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"label": [(i + 1) % 2 for i in range(rows)], **columns}), path)
    return path


def read(path: Path, kind: ColumnKind, data: DataConfig = PARQUET) -> tuple[list[Any], list[int]]:
    (batch,) = open_data(path, data, columns=[Column("x", kind)]).raw_batches(99)
    lists = batch.columns["x"]
    assert isinstance(lists, Ragged)
    return lists.values.tolist(), lists.row_splits.tolist()


@pytest.mark.parametrize(
    "stored",
    [
        pa.list_(pa.int64()),
        pa.large_list(pa.int32()),
        pa.list_(pa.uint64()),
        pa.list_(pa.string()),
        pa.large_list(pa.large_string()),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [ColumnKind.IDS, ColumnKind.TEXTS], ids=str)
def test_null_lists_are_empty_and_null_values_are_dropped(
    tmp_path: Path, stored: pa.DataType, kind: ColumnKind
) -> None:
    rows = [[3, None, 4], None, [], [5]]
    if not pa.types.is_integer(stored.value_type):
        rows = [["3", "", None, "4"], None, [], ["5"]]
    array = pa.array(rows, pa.list_(pa.string()) if "dict" in str(stored) else stored)
    values, splits = read(write(tmp_path, x=array.cast(stored)), kind)
    assert values == ([3, 4, 5] if kind is ColumnKind.IDS else [b"3", b"4", b"5"])
    assert splits == [0, 2, 2, 2, 3]


def test_lists_of_a_fixed_size_are_read(tmp_path: Path) -> None:
    array = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2))
    assert read(write(tmp_path, x=array), ColumnKind.IDS) == ([1, 2, 3], [0, 2, 2, 3])


def test_a_value_that_is_no_integer_makes_its_row_malformed(tmp_path: Path) -> None:
    path = write(tmp_path, x=[["1"], ["2", "b"], ["3"]])
    with pytest.raises(DataError, match=r"row 2: x is .*'b'.*hash: true takes any text"):
        read(path, ColumnKind.IDS)
    skip = PARQUET.model_copy(update={"on_malformed": "skip"})
    assert read(path, ColumnKind.IDS, skip) == ([1, 3], [0, 1, 2])
    file = open_data(path, skip, columns=[Column("x", ColumnKind.IDS)])
    list(file.record_batches())
    assert file.malformed == Malformed(1, 2)


def features(**options: Any) -> FeaturesConfig:
    return FeaturesConfig.model_validate(
        {"sparse": {"columns": ["x"], "dim": 2, "lists": True, **options}}
    )


def test_keys_are_those_of_single_values(tmp_path: Path) -> None:
    path = write(tmp_path, x=[[7, 8], [], [7]])
    (raw,) = open_data(path, PARQUET, features()).raw_batches(9)
    keys = encode(raw, features()).sparse["x"]
    expected = fingerprint_keys(pa.array(["7", "8", "7"]), b"x\x1f")
    np.testing.assert_array_equal(keys.keys, expected)
    assert keys.row_splits is not None
    assert keys.row_splits.tolist() == [0, 2, 2, 3]
    integers = features(hash=False)
    (raw,) = open_data(path, PARQUET, integers).raw_batches(9)
    assert encode(raw, integers).sparse["x"].keys.tolist() == [7, 8, 7]


def run_of(path: Path, **options: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "lists",
            "data": {"format": "parquet", "train": str(path)},
            "features": {"sparse": {"columns": ["a", "x", "b"], "dim": 2, **options}},
            "model": {"arch": "wide_deep"},
        }
    )


def test_the_training_file_says_which_columns_are_lists(tmp_path: Path) -> None:
    path = write(tmp_path, b=["u", "v"], x=[["r"], []], a=[1, 2])
    config = with_list_columns(run_of(path))
    columns = config.features.sparse_columns()
    assert [(c.name, c.lists) for c in columns] == [("a", False), ("x", True), ("b", False)]
    assert with_list_columns(config) == config
    single = write(tmp_path, b=["u"], x=["r"], a=[1])
    assert with_list_columns(run_of(single)) == run_of(single)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"combiner": "none"}, "combiner 'none' needs exactly one key an example"),
        ({"buckets": "log"}, "buckets are for single numbers, but the columns are lists: x"),
    ],
)
def test_options_that_do_not_go_with_lists_are_refused(
    tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    path = write(tmp_path, b=[1, 2], x=[[1], []], a=[1, 2])
    with pytest.raises(InvalidArgumentError, match=text):
        with_list_columns(run_of(path, **options))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"separator": "|"}, "which need no separator; leave features.sparse.separator '|' out"),
        ({"lists": False}, "one value a row is needed"),
    ],
)
def test_a_file_that_stores_lists_is_refused_where_single_values_are_needed(
    tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    path = write(tmp_path, b=[1, 2], x=[["1"], []], a=[1, 2])
    config = with_list_columns(run_of(path, **options))
    with pytest.raises(InvalidArgumentError, match=text):
        open_data(path, config.data, config.features)


def test_single_values_are_refused_where_lists_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path, x=["1"])
    with pytest.raises(InvalidArgumentError, match="but lists are needed"):
        open_data(path, PARQUET, features())
    text = tmp_path / "rows.csv"
    text.write_text("x,label\n1,0\n")
    with pytest.raises(InvalidArgumentError, match="which a text file does not hold"):
        open_data(text, DataConfig(format="csv", train="-"), features())


def test_types_that_cannot_be_read_are_named_or_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, x=[{"u": 1}], y=[[[1]]], z=[[0.5]])
    with pytest.raises(InvalidArgumentError, match=r"'x' is stored as struct<.*lists of them can"):
        open_data(path, PARQUET, columns=[Column("x", ColumnKind.TEXT)])
    readable = stored_columns(pq.read_schema(path))
    assert readable == (Column("label", ColumnKind.INTEGER), Column("z", ColumnKind.TEXTS))
    assert open_data(path, PARQUET).columns == (Column("z", ColumnKind.TEXTS),)


def test_parquet_is_known_by_its_content_and_the_format_by_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, x=[[1]]).rename(tmp_path / "part-0")
    assert read(path, ColumnKind.IDS, DataConfig(format="csv", train="-")) == ([1], [0, 1])
    text = tmp_path / "rows.csv"
    text.write_text("x,label\n1,0\n")
    with pytest.raises(DataError, match=r"is not Parquet, but data.format is 'parquet'"):
        open_data(text, PARQUET)
