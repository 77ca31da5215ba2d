"""Criteo TSV and CSV."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotrow.config import CRITEO_DENSE, CRITEO_SPARSE, DataConfig, FeaturesConfig
from hotrow.trainer.data import DataError, open_data
from hotrow.trainer.data.columns import MISSING_KEY, Column, ColumnKind
from hotrow.trainer.data.delimited import DelimitedSource
from hotrow.trainer.data.lines import LineBlock
from hotrow.trainer.data.malformed import MalformedLog

Write = Callable[..., Path]
CRITEO = DataConfig(format="criteo", train="-")
ADULT_COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation"),
    *("relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week"),
    *("native_country", "income"),
]
ADULT = DataConfig.model_validate(
    {
        "format": "csv",
        "train": "-",
        "columns": ADULT_COLUMNS,
        "label": "income",
        "positive": ">50K",
    }
)


def test_criteo_rows_equal_those_of_a_plain_python_reader(shared: Path) -> None:
    path = shared / "data/criteo_head10k/criteo_head10k.tsv.gz"
    with gzip.open(path, "rt") as text:
        rows = [line.rstrip("\n").split("\t") for line in text]
    batches = list(open_data(path, CRITEO).raw_batches(4096))
    assert [batch.size for batch in batches] == [4096, 4096, 1808]
    labels = np.concatenate([batch.labels for batch in batches if batch.labels is not None])
    assert labels.sum() == 2182
    for i, name in enumerate(CRITEO_DENSE, start=1):
        expected = np.array([float(row[i] or "nan") for row in rows], np.float32)
        np.testing.assert_array_equal(
            np.concatenate([batch.array(name) for batch in batches]), expected
        )
    for i, name in enumerate(CRITEO_SPARSE, start=14):
        texts = [text for batch in batches for text in batch.array(name)]
        assert texts == [row[i].encode() for row in rows]


def test_criteo_rows_without_labels_are_read_for_prediction(write: Write) -> None:
    path = write("test.tsv", "\t".join(["3"] * 13 + ["ab"] * 26) + "\n")
    file = open_data(path, CRITEO)
    (batch,) = file.raw_batches(8)
    assert not file.has_labels
    assert batch.labels is None
    assert batch.array("I1").tolist() == [3.0]
    with pytest.raises(DataError, match="39 fields, not 40"):
        list(open_data(path, CRITEO, require_labels=True).raw_batches(8))


def test_adult_census_values_are_trimmed_and_its_label_read(shared: Path) -> None:
    file = open_data(shared / "data/adult_census/adult.data.gz", ADULT)
    batches = list(file.raw_batches(10_000))
    assert sum(batch.size for batch in batches) == 32_561
    assert sum(batch.labels.sum() for batch in batches if batch.labels is not None) == 7_841
    assert batches[0].array("workclass")[:2].tolist() == [b"State-gov", b"Self-emp-not-inc"]


def test_only_the_columns_of_the_features_are_read(shared: Path) -> None:
    features = FeaturesConfig.model_validate(
        {
            "dense": {"columns": ["age"]},
            "sparse": [
                {"columns": ["education"], "dim": 4},
                {"columns": ["age", "capital_gain"], "dim": 4, "buckets": "log"},
            ],
        }
    )
    file = open_data(shared / "data/adult_census/adult.data.gz", ADULT, features)
    batch = next(file.raw_batches(3))
    assert {name: batch.array(name).dtype for name in batch.columns} == {
        "age": np.float32,
        "capital_gain": np.float32,
        "education": np.object_,
    }
    assert batch.array("capital_gain").tolist() == [2174.0, 0.0, 0.0]


def test_a_positive_text_that_never_occurs_is_reported(write: Write) -> None:
    data = DataConfig(format="csv", train="-", positive="YES")
    with pytest.raises(DataError, match=r"no label is 'YES' in 2 rows; set data.positive"):
        list(open_data(write("a.csv", "a,label\n1,yes\n2,no\n"), data).raw_batches(4))


def test_csv_has_headers_quotes_blanks_and_other_delimiters(write: Write) -> None:
    path = write("a.csv", 'id; text ;label\r\n 1 ;"a; ""b""";1\r\n;  c d ; 0 \r\n')
    data = DataConfig(format="csv", train="-", delimiter=";")
    columns = [Column("id", ColumnKind.INTEGER), Column("text", ColumnKind.TEXT)]
    (batch,) = open_data(path, data, columns=columns).raw_batches(4)
    assert batch.array("text").tolist() == [b'a; "b"', b"c d"]
    assert batch.array("id").tolist() == [1, MISSING_KEY]
    assert batch.labels is not None
    assert batch.labels.tolist() == [1.0, 0.0]


def test_bytes_that_are_not_utf8_reach_the_batch_unchanged(write: Write) -> None:
    path = write("a.csv", b"t,label\n\xff\xfe,1\nshort\n\xe9,0\n")
    data = DataConfig(format="csv", train="-", on_malformed="skip")
    (batch,) = open_data(path, data).raw_batches(4)
    assert batch.array("t").tolist() == [b"\xff\xfe", b"\xe9"]


def test_numbers_say_nan_where_they_are_missing(write: Write) -> None:
    path = write("a.csv", "x,label\n1.5,1\n,0\nnan,0\n -2e3 ,1\n")
    columns = [Column("x", ColumnKind.NUMBER)]
    (batch,) = open_data(path, DataConfig(format="csv", train="-"), columns=columns).raw_batches(9)
    np.testing.assert_array_equal(
        batch.array("x"), np.array([1.5, np.nan, np.nan, -2000], np.float32)
    )


FIELD = st.one_of(
    st.sampled_from(["", " ", "0", "1", " 1", "1 ", "-5", "nan", "inf", "1e3", "x", "0x1f", "+2"]),
    st.integers(-(2**65), 2**65).map(str),
    st.floats(width=32).map(str),
    st.text(st.characters(codec="utf-8", exclude_characters="\t\r\n\0"), max_size=5),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.lists(FIELD, min_size=3, max_size=5), min_size=1, max_size=6))
def test_the_fast_path_gives_the_rows_of_the_exact_one(rows: list[list[str]]) -> None:
    source = DelimitedSource(
        path=Path("-"),
        names=("label", "x", "id", "t"),
        columns=(
            Column("x", ColumnKind.NUMBER),
            Column("id", ColumnKind.INTEGER),
            Column("t", ColumnKind.TEXT),
        ),
        label="label",
        positive=None,
        delimiter="\t",
        header=False,
        quoted=False,
        trimmed=False,
    )
    block = LineBlock("\n".join("\t".join(row) for row in rows).encode(), 1)
    log = MalformedLog("-", "skip")
    fast, slow = source._fast(block), source._slow(block, log)
    if fast is not None:
        assert log.seen.count == 0
        assert _cells(fast) == _cells(slow)
    else:
        # A line of blanks is passed over, whatever the number of its fields.
        blank = any(not "".join(row).strip() for row in rows)
        assert log.seen.count > 0 or blank, "a block without problems takes the fast path"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=8),
            st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            st.one_of(st.none(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
            st.booleans(),
        ),
        min_size=1,
        max_size=30,
    ),
    batch_size=st.integers(1, 7),
)
def test_what_pythons_csv_writes_comes_back(
    tmp_path: Path, rows: list[tuple[str, int | None, float | None, bool]], batch_size: int
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(["t", "id", "x", "label"])
    writer.writerows([t, i, x, int(label)] for t, i, x, label in rows)
    path = tmp_path / "rows.csv"
    path.write_text(text.getvalue())
    columns = [
        Column("t", ColumnKind.TEXT),
        Column("id", ColumnKind.INTEGER),
        Column("x", ColumnKind.NUMBER),
    ]
    file = open_data(path, DataConfig(format="csv", train="-"), columns=columns)
    batches = list(file.raw_batches(batch_size))
    assert [batch.size for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    blanks = " \t\n\v\f\r"
    assert [t for b in batches for t in b.array("t")] == [r[0].strip(blanks).encode() for r in rows]
    assert [i for b in batches for i in b.array("id")] == [
        MISSING_KEY if row[1] is None else row[1] for row in rows
    ]
    np.testing.assert_array_equal(
        np.concatenate([b.array("x") for b in batches]),
        np.array([np.nan if row[2] is None else row[2] for row in rows], np.float32),
    )


def _cells(batch: pa.RecordBatch) -> list[list[str]]:
    return [[repr(cell) for cell in column.to_pylist()] for column in batch.columns]
