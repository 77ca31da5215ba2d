"""LibSVM text."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotrow.config import DataConfig, FeaturesConfig
from hotrow.errors import InvalidArgumentError
from hotrow.trainer.data import DataError, Ragged, RawBatch, encode, open_data

Write = Callable[..., Path]
PLAIN = DataConfig(format="libsvm", train="-")
WEIGHTED = DataConfig(format="libsvm", train="-", weights=True)


def ids_of(batch: RawBatch, name: str = "ids") -> Ragged:
    column = batch.columns[name]
    assert isinstance(column, Ragged)
    return column


def rows_of(batch: RawBatch) -> list[list[int]]:
    ids = ids_of(batch)
    splits = ids.row_splits.tolist()
    return [ids.values[a:b].tolist() for a, b in pairwise(splits)]


def test_frappe_rows_equal_those_of_a_plain_python_reader(shared: Path) -> None:
    path = shared / "data/frappe_x1/valid.libsvm.gz"
    with gzip.open(path, "rt") as text:
        lines = [line.split() for line in text]
    batches = list(open_data(path, PLAIN).raw_batches(10_000))
    assert sum(batch.size for batch in batches) == 57_722
    assert sum(batch.labels.sum() for batch in batches if batch.labels is not None) == 19_063
    assert [row for batch in batches for row in rows_of(batch)] == [
        [int(pair.split(":")[0]) for pair in line[1:]] for line in lines
    ]


def test_the_one_sparse_column_of_the_features_names_the_ids(write: Write) -> None:
    path = write("a.libsvm", "1 3:1 9:1\n0 4:1\n")
    features = FeaturesConfig.model_validate({"sparse": {"columns": ["apps"], "dim": 4}})
    (batch,) = open_data(path, PLAIN, features).raw_batches(4)
    keys = encode(batch, features).sparse["apps"]
    assert keys.keys.tolist() == [3, 9, 4]
    assert keys.row_splits is not None
    assert keys.row_splits.tolist() == [0, 2, 3]
    assert keys.weights is None


@pytest.mark.parametrize(
    "features",
    [
        {"sparse": {"columns": ["a", "b"], "dim": 4}},
        {"dense": {"columns": ["x"]}, "sparse": {"columns": ["a"], "dim": 4}},
        {"dense": {"columns": ["x"]}},
    ],
    ids=["two sparse columns", "a dense column too", "no sparse column"],
)
def test_other_features_are_refused(write: Write, features: dict[str, object]) -> None:
    path = write("a.libsvm", "1 3:1\n")
    with pytest.raises(InvalidArgumentError, match="name one under sparse and none under dense"):
        open_data(path, PLAIN, FeaturesConfig.model_validate(features))


def test_labels_may_be_signed_and_comments_are_left_out(write: Write) -> None:
    path = write("a.libsvm", "# a comment\n+1 3:1 # another\n-1\n0\t4:1  5:2 \n1 6:1")
    (batch,) = open_data(path, PLAIN).raw_batches(9)
    assert batch.labels is not None
    assert batch.labels.tolist() == [1, 0, 0, 1]
    assert rows_of(batch) == [[3], [], [4, 5], [6]]


def test_lines_without_labels_are_read_for_prediction(write: Write) -> None:
    path = write("a.libsvm", "3:1 4:1\n5:1\n")
    (batch,) = open_data(path, PLAIN).raw_batches(9)
    assert batch.labels is None
    assert rows_of(batch) == [[3, 4], [5]]
    with pytest.raises(DataError, match="label is '3:1', not 0, 1 or -1"):
        list(open_data(path, PLAIN, require_labels=True).raw_batches(9))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(["0", "1", "-1", "+1", "oops"]),
            st.lists(
                st.tuples(
                    st.integers(-(2**63), 2**63 - 1),
                    st.floats(width=32, allow_nan=False, allow_infinity=False),
                ),
                max_size=5,
            ),
        ),
        min_size=1,
        max_size=20,
    ),
    batch_size=st.integers(1, 6),
)
def test_written_rows_come_back_and_bad_lines_are_counted(
    tmp_path: Path, rows: list[tuple[str, list[tuple[int, float]]]], batch_size: int
) -> None:
    rows = [("1", [(7, 1.0)]), *rows]
    lines = [" ".join([label, *(f"{i}:{v!r}" for i, v in pairs)]) for label, pairs in rows]
    path = tmp_path / "rows.libsvm"
    path.write_text("\n".join(lines) + "\n")
    file = open_data(path, WEIGHTED.model_copy(update={"on_malformed": "skip"}))
    batches = list(file.raw_batches(batch_size))
    good = [row for row in rows if row[0] != "oops"]
    assert [row for batch in batches for row in rows_of(batch)] == [
        [i for i, _ in pairs] for _, pairs in good
    ]
    for batch in batches:
        assert len(ids_of(batch).row_splits) == batch.size + 1
    weights = [w for batch in batches for w in _weights(batch)]
    assert weights == [np.float32(v) for _, pairs in good for _, v in pairs]
    assert file.malformed.count == len(rows) - len(good)
    first = next((i for i, row in enumerate(rows, start=1) if row[0] == "oops"), None)
    assert file.malformed.first_line == first


def _weights(batch: RawBatch) -> list[float]:
    weights = ids_of(batch).weights
    assert weights is not None
    return list(weights)
