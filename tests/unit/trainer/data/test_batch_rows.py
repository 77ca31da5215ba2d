"""Cutting, joining and picking rows of encoded batches, against lists of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hotrow.trainer.data import Batch, Keys
from hotrow.trainer.data.batch_rows import cut_batch, join_batches, take_rows

Row = tuple[float, int, list[tuple[int, float]], float]
ROWS = st.lists(
    st.tuples(
        st.integers(0, 9).map(float),
        st.integers(-(2**63), 2**63 - 1),
        st.lists(st.tuples(st.integers(), st.integers(0, 9).map(float)), max_size=3).map(
            lambda pairs: [(key % 2**62, weight) for key, weight in pairs]
        ),
        st.sampled_from([0.0, 1.0]),
    ),
    max_size=8,
)


def batch_of(rows: list[Row]) -> Batch:
    pairs = [pair for row in rows for pair in row[2]]
    return Batch(
        dense=np.array([[row[0]] for row in rows], np.float32).reshape(-1, 1),
        sparse={
            "one": Keys(np.array([row[1] for row in rows], np.int64)),
            "many": Keys(
                np.array([key for key, _ in pairs], np.int64),
                np.cumsum([0, *(len(row[2]) for row in rows)], dtype=np.int64),
                np.array([weight for _, weight in pairs], np.float32),
            ),
        },
        labels=np.array([row[3] for row in rows], np.float32),
    )


def rows_of(batch: Batch) -> list[Any]:
    many = batch.sparse["many"]
    assert many.row_splits is not None
    assert many.weights is not None
    assert many.row_splits.dtype == np.int64
    assert batch.labels is not None
    return [
        (
            batch.dense[i, 0],
            batch.sparse["one"].keys[i],
            list(zip(many.keys[a:b], many.weights[a:b], strict=True)),
            batch.labels[i],
        )
        for i, (a, b) in enumerate(zip(many.row_splits[:-1], many.row_splits[1:], strict=True))
    ]


@given(ROWS, st.data())
def test_a_cut_holds_the_rows_between(rows: list[Row], data: st.DataObject) -> None:
    stop = data.draw(st.integers(0, len(rows)))
    start = data.draw(st.integers(0, stop))
    assert rows_of(cut_batch(batch_of(rows), start, stop)) == rows[start:stop]


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_joined_batches_hold_all_rows_in_order(parts: list[list[Row]]) -> None:
    joined = join_batches([batch_of(rows) for rows in parts])
    assert rows_of(joined) == [row for rows in parts for row in rows]


@given(ROWS, st.data())
def test_rows_are_taken_in_the_order_asked_for(rows: list[Row], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, max(0, len(rows) - 1)), max_size=12 if rows else 0))
    taken = take_rows(batch_of(rows), np.array(numbers, np.int64))
    assert rows_of(taken) == [rows[i] for i in numbers]
