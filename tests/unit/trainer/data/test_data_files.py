"""Several files are judged together: rows and positive labels may be in any of them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.config import RunConfig, parse_config
from hotrow.trainer.data import BatchStream, DataError
from hotrow.trainer.data.list_columns import with_list_columns

CSV = {"format": "csv", "train": "-", "batch_size": 4}


def config_of(column: str = "key", **data: object) -> RunConfig:
    return parse_config(
        {
            "name": "m",
            "data": {**CSV, **data},
            "features": {"sparse": {"columns": [column], "dim": 2}},
            "model": {"arch": "logistic"},
        }
    )


def rows_of(paths: list[Path], config: RunConfig) -> int:
    return sum(batch.size for batch in BatchStream(paths, config))


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("e.csv", b"", id="no byte"),
        pytest.param("e.csv.gz", gzip.compress(b""), id="a compressed file of no byte"),
        pytest.param("e.csv", b"key,label\n", id="only a header"),
        pytest.param("e.csv", b"key,label\n\n \n", id="blank lines"),
    ],
)
def test_a_file_without_rows_among_others_is_an_empty_shard(
    tmp_path: Path, place: int, name: str, content: bytes
) -> None:
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path in paths:
        path.write_text("key,label\nx,1\ny,0\n")
    paths.insert(place, tmp_path / name)
    paths[place].write_bytes(content)
    assert rows_of(paths, config_of()) == 4


@pytest.mark.parametrize("place", [0, 1])
def test_a_parquet_file_without_rows_may_have_lost_its_types(tmp_path: Path, place: int) -> None:
    full, empty = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.table({"keys": [["x", "y"], []], "label": [1, 0]}), full)
    nothing = pa.array([], pa.null())
    pq.write_table(pa.table({"keys": nothing, "label": nothing}), empty)
    paths = [full]
    paths.insert(place, empty)
    config = config_of("keys", format="parquet", train=[str(path) for path in paths])
    assert rows_of(paths, with_list_columns(config)) == 2


def test_files_that_all_have_no_row_are_refused_together(tmp_path: Path) -> None:
    names = [tmp_path / "a.csv", tmp_path / "b.csv"]
    names[0].write_text("")
    names[1].write_text("key,label\n")
    for paths in (names, [names[0], names[0]]):
        said = f"{paths[0]} and 1 more file: no row to read in any of them"
        with pytest.raises(DataError, match=f"^{re.escape(said)}"):
            rows_of(paths, config_of())


def test_malformed_lines_of_files_without_rows_are_reported(tmp_path: Path) -> None:
    names = [tmp_path / "a.csv", tmp_path / "b.csv"]
    names[0].write_text("key,label\n")
    names[1].write_text("key,label\nx\n")
    with pytest.raises(DataError, match=r"in any of them; left out: 1 malformed line, the first"):
        rows_of(names, config_of(on_malformed="skip"))


def test_one_of_several_files_may_have_no_positive_label(tmp_path: Path) -> None:
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text("key,label\nx,no\ny,no\n")
    paths[1].write_text("key,label\nx,yes\n")
    assert rows_of(paths, config_of(positive="yes")) == 3
    said = (
        f"{paths[0]} and 1 more file: no label is 'Yes' in 3 rows; set data.positive "
        "(--positive) to the text that means 1"
    )
    with pytest.raises(DataError, match=f"^{re.escape(said)}$"):
        rows_of(paths, config_of(positive="Yes"))
