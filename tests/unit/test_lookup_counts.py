"""Counts of lookups: shares of the top rows against sorting all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.lookup_counts import LookupCounts

# Many small ones, some around 2^16, where the way they are kept changes, and the largest.
count = st.one_of(
    st.integers(0, 3), st.integers(65530, 65540), st.integers(0, 2**32 - 1), st.just(2**32 - 1)
)
batches = st.lists(st.lists(count, max_size=150), max_size=4)


def added(parts):
    counts = LookupCounts()
    for part in parts:
        counts.add(np.array(part, np.uint32))
    return counts


@given(parts=batches, percent=st.sampled_from([1, 10, 50, 100]))
def test_the_share_of_the_top_rows_is_that_of_sorted_counts(parts, percent):
    counts = added(parts)
    every = sorted((c for part in parts for c in part), reverse=True)
    assert (counts.rows, counts.lookups) == (len(every), sum(every))
    assert counts.unused == every.count(0)
    top = -(-len(every) * percent // 100)
    expected = sum(every[:top]) / sum(every) if sum(every) else None
    assert counts.share_of_top(percent) == expected


@given(parts=batches)
def test_rows_are_counted_by_octaves(parts):
    expected = np.zeros(33, np.int64)
    for part in parts:
        for c in part:
            expected[c.bit_length()] += 1
    assert added(parts).octaves().tolist() == expected.tolist()


def test_ties_at_the_border_of_the_top_take_as_many_rows_as_fit():
    counts = added([[5] * 199 + [10]])
    assert counts.share_of_top(1) == pytest.approx((10 + 5) / (199 * 5 + 10))


def test_memory_grows_with_distinct_counts_and_not_with_rows():
    counts = LookupCounts()
    part = np.repeat(np.arange(1, 201, dtype=np.uint32) * 100_000, 50)
    for _ in range(20):
        counts.add(part)
    assert counts.rows == 200_000
    assert len(counts._large) == len(counts._large_rows) == 200
