"""What a file holds, column by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hotrow.config import DataConfig
from hotrow.trainer.data import Column, ColumnKind, Malformed, open_data
from hotrow.trainer.data import summary as summary_module
from hotrow.trainer.data.summary import summarize

Write = Callable[..., Path]


def test_metrics_of_a_small_csv(write: Write) -> None:
    rows = ["1,a,7,1", "2,a,,0", ",b,7,0", "4,,8,0", "broken", "nan,a,9,1"]
    path = write("a.csv", "x,t,id,label\n" + "\n".join(rows))
    columns = [
        Column("x", ColumnKind.NUMBER),
        Column("t", ColumnKind.TEXT),
        Column("id", ColumnKind.INTEGER),
    ]
    data = DataConfig(format="csv", train="-", on_malformed="skip")
    summary = summarize(open_data(path, data, columns=columns), counted_rows=100, top=2)
    assert (summary.rows, summary.malformed) == (5, Malformed(1, 6))
    assert summary.label_rate == pytest.approx(0.4)
    x, t, ids = summary.columns
    assert (x.missing_share, x.distinct) == (0.4, 3)
    assert x.mean == pytest.approx(7 / 3)
    assert (t.missing_share, t.distinct, t.mean) == (0.2, 2, None)
    assert t.top == (("a", 3), ("b", 1))
    assert (ids.missing_share, ids.distinct, ids.mean) == (0.2, 3, 7.75)
    assert ids.top == (("7", 2), ("8", 1))


def test_ids_of_libsvm_are_counted_one_by_one(write: Write) -> None:
    path = write("a.libsvm", "1 3:1 4:1\n0\n1 3:1 5:1 6:1\n")
    summary = summarize(open_data(path, DataConfig(format="libsvm", train="-")), 100, top=1)
    (ids,) = summary.columns
    assert ids.missing_share == pytest.approx(1 / 3)
    assert (ids.distinct, ids.top) == (4, (("3", 2),))
    assert ids.mean == pytest.approx(5 / 3)


def test_distinct_values_are_those_of_the_first_rows(write: Write) -> None:
    path = write("a.csv", "t,label\n" + "".join(f"{i},1\n" for i in range(50)))
    file = open_data(path, DataConfig(format="csv", train="-"))
    summary = summarize(file, counted_rows=20, top=1)
    assert (summary.rows, summary.counted_rows) == (50, 20)
    assert summary.columns[0].distinct == 20


def test_counts_are_exact_when_they_are_merged_on_the_way(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary_module, "MERGE_AFTER_VALUES", 100)
    path = shared / "data/criteo_head10k/criteo_head10k.tsv.gz"
    file = open_data(path, DataConfig(format="criteo", train="-"))
    summary = summarize(file, counted_rows=10**6, top=5)
    counts = Counter(text for batch in file.raw_batches(5000) for text in batch.array("C3"))
    missing = counts.pop(b"")
    (c3,) = [column for column in summary.columns if column.name == "C3"]
    assert c3.distinct == len(counts)
    assert c3.missing_share == missing / 10_000
    assert [count for _, count in c3.top] == [count for _, count in counts.most_common(5)]
    texts = sum(column.distinct for column in summary.columns if column.kind == "text")
    assert texts == 43_579, "the number of distinct values in the data's README"
