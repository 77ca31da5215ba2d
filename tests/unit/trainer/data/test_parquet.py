"""Parquet: what is written reads back as the text it came from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.config import DataConfig
from hotrow.errors import NotFoundError
from hotrow.trainer.data import DataError, Malformed, Ragged, open_data
from hotrow.trainer.data.columns import MISSING_KEY, Column, ColumnKind
from hotrow.trainer.data.parquet import write_parquet

Write = Callable[..., Path]
CRITEO = DataConfig(format="criteo", train="-")


def test_criteo_rows_survive_parquet(shared: Path, tmp_path: Path) -> None:
    text = open_data(shared / "data/criteo_head10k/criteo_head10k.tsv.gz", CRITEO)
    path = tmp_path / "criteo.parquet"
    assert write_parquet(path, text.record_batches()) == 10_000
    for there, here in zip(
        text.raw_batches(3000), open_data(path, CRITEO).raw_batches(3000), strict=True
    ):
        np.testing.assert_array_equal(there.labels, here.labels)
        assert there.columns.keys() == here.columns.keys()
        for name, column in there.columns.items():
            np.testing.assert_array_equal(column, here.columns[name])


@pytest.mark.parametrize("weights", [False, True])
def test_libsvm_rows_survive_parquet(write: Write, tmp_path: Path, weights: bool) -> None:
    data = DataConfig(format="libsvm", train="-", weights=weights)
    text = open_data(write("a.libsvm", "1 3:0.5 -4:2\n0\n1 5:1\n"), data)
    path = tmp_path / "a.parquet"
    write_parquet(path, text.record_batches())
    (there,), (here,) = text.raw_batches(9), open_data(path, data).raw_batches(9)
    a, b = there.columns["ids"], here.columns["ids"]
    assert isinstance(a, Ragged)
    assert isinstance(b, Ragged)
    np.testing.assert_array_equal(a.values, b.values)
    np.testing.assert_array_equal(a.row_splits, b.row_splits)
    assert (b.weights is not None) == weights
    np.testing.assert_array_equal(there.labels, here.labels)


def test_typed_columns_of_other_writers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "typed.parquet"
    table = pa.table(
        {
            "label": pa.array([1, 0, 1], pa.int8()),
            "id": pa.array([2**53 + 1, None, -7]),
            "x": pa.array([0.1, None, 3.0]),
            "n": pa.array([4, 5, None]),
            "t": pa.array(["a", None, "b"]).dictionary_encode(),
        }
    )
    pq.write_table(table, path)
    columns = [
        Column("id", ColumnKind.INTEGER),
        Column("x", ColumnKind.NUMBER),
        Column("n", ColumnKind.TEXT),
        Column("t", ColumnKind.TEXT),
    ]
    (batch,) = open_data(path, DataConfig(format="csv", train="-"), columns=columns).raw_batches(9)
    assert batch.array("id").tolist() == [2**53 + 1, MISSING_KEY, -7]
    np.testing.assert_array_equal(batch.array("x"), np.array([0.1, np.nan, 3], np.float32))
    assert batch.array("n").tolist() == [b"4", b"5", b""]
    assert batch.array("t").tolist() == [b"a", b"", b"b"]


def test_malformed_rows_are_counted_by_row(tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"label": [1, 0, 3], "x": ["1", "b", "2"]}), path)
    columns = [Column("x", ColumnKind.NUMBER)]
    data = DataConfig(format="csv", train="-")
    with pytest.raises(DataError, match="row 2: x is 'b', not a finite number"):
        list(open_data(path, data, columns=columns).raw_batches(9))
    file = open_data(path, data.model_copy(update={"on_malformed": "skip"}), columns=columns)
    assert [batch.size for batch in file.raw_batches(9)] == [1]
    assert file.malformed == Malformed(2, 2)


def test_a_file_that_is_not_parquet_is_refused(write: Write, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x.parquet cannot be read as Parquet"):
        open_data(write("x.parquet", "1,2,3\n"), CRITEO)
    with pytest.raises(NotFoundError, match=r"no.parquet does not exist"):
        open_data(tmp_path / "no.parquet", CRITEO)


def test_a_failed_write_leaves_nothing_behind(write: Write, tmp_path: Path) -> None:
    file = open_data(write("a.csv", "x,label\n1,1\n" * 3), DataConfig(format="csv", train="-"))
    with pytest.raises(DataError, match="line 3: label is 'label'"):
        write_parquet(tmp_path / "a.parquet", file.record_batches())
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_nothing_to_write_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no row to write"):
        write_parquet(tmp_path / "a.parquet", iter(()))
