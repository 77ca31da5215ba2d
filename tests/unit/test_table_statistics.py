"""Statistics gathered batch by batch against numpy over all rows at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hotrow.table_statistics import Bin, TableStatistics


def add(statistics, weights, clocks=None, counts=None):
    weights = np.asarray(weights, np.float32)
    zeros = np.zeros(len(weights), np.uint32)
    finite = np.isfinite(weights).all(axis=1)
    statistics.add(
        weights,
        zeros if clocks is None else np.asarray(clocks, np.uint32),
        zeros if counts is None else np.asarray(counts, np.uint32),
        finite,
    )


@given(
    parts=st.lists(arrays.arrays(np.float32, st.tuples(st.integers(0, 20), st.just(3))), max_size=3)
)
def test_norms_are_those_of_all_rows_together(parts):
    statistics = TableStatistics(0)
    for part in parts:
        add(statistics, part)
    every = np.concatenate([np.zeros((0, 3), np.float32), *parts]).astype(np.float64)
    finite = np.isfinite(every).all(axis=1)
    norms = np.sqrt((every[finite] ** 2).sum(axis=1))
    assert statistics.rows == len(every)
    assert statistics.not_finite == (~finite).sum()
    if not len(norms):
        assert statistics.norm_mean is statistics.norm_min is statistics.norm_max is None
        return
    assert statistics.norm_mean == pytest.approx(norms.mean())
    assert statistics.norm_min == pytest.approx(norms.min())
    assert statistics.norm_max == pytest.approx(norms.max())
    bins = statistics.norms()
    assert sum(b.rows for b in bins) == len(norms)
    assert [b.low for b in bins] == sorted(b.low for b in bins)
    for b in bins:
        within = (b.low <= norms) & ((norms < b.high) | (b.high == 0) & (norms == 0))
        # the last bit of a sum may fall on either side of a boundary
        near = (abs(norms - b.low) <= 1e-12 * b.low) | (abs(norms - b.high) <= 1e-12 * b.high)
        assert abs(int(within.sum()) - b.rows) <= near.sum()


@given(value=st.floats(min_value=0, width=32, allow_infinity=False))
def test_a_norm_is_in_a_bin_of_an_eighth_of_its_octave(value):
    statistics = TableStatistics(0)
    add(statistics, [[value]])
    (found,) = statistics.norms()
    if value == 0:
        assert found == Bin(0.0, 0.0, 1)
    else:
        assert found.low <= value * (1 + 1e-12)
        assert value <= found.high * (1 + 1e-12)
        assert found.high / found.low == pytest.approx(2 ** (1 / 8))


@given(
    step=st.integers(0, 2**32 - 1),
    clocks=st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=20), max_size=3),
)
def test_ages_are_counted_by_octaves(step, clocks):
    statistics = TableStatistics(step)
    for part in clocks:
        add(statistics, np.ones((len(part), 1)), clocks=part)
    ages = [max(0, step - clock) for part in clocks for clock in part]
    bins = statistics.ages()
    assert sum(b.rows for b in bins) == len(ages)
    for b in bins:
        assert b.rows == sum(b.low <= age < b.high for age in ages)
    assert [b.high for b in bins[:-1]] == [b.low for b in bins[1:]]
    assert statistics.age_mean == (pytest.approx(np.mean(ages)) if ages else None)


def test_a_row_created_after_the_last_step_has_age_0():
    statistics = TableStatistics(5)
    add(statistics, [[1.0]], clocks=[6])
    assert statistics.ages() == [Bin(0, 1, 1)]


def test_lookups_are_counted_by_octaves():
    statistics = TableStatistics(0)
    add(statistics, np.ones((5, 2)), counts=[0, 1, 3, 2, 9])
    assert statistics.lookups() == [
        Bin(0, 1, 1),
        Bin(1, 2, 1),
        Bin(2, 4, 2),
        Bin(4, 8, 0),
        Bin(8, 16, 1),
    ]


def test_large_weights_do_not_overflow_their_norm():
    statistics = TableStatistics(0)
    add(statistics, [[3e38, 3e38]])
    assert statistics.norm_max == pytest.approx(3e38 * math.sqrt(2))
    assert statistics.not_finite == 0


def test_a_table_without_rows_has_empty_histograms():
    statistics = TableStatistics(3)
    assert (statistics.ages(), statistics.norms(), statistics.lookups()) == ([], [], [])
    assert (statistics.age_mean, statistics.norm_mean) == (None, None)
    assert statistics.counts.share_of_top(1) is None
