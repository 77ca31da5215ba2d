"""Counting distinct rows in bounded memory, and the statistics of a sample."""

from __future__ import annotations

import numpy as np
import pytest
from unit.ops.planner.simulated_messages import Column
from unit.ops.planner.workloads import zipf

import hotrow
from hotrow.ops.planner import Sample
from hotrow.ops.planner.distinct_rows import DistinctRows


def counted(batches):
    rows = DistinctRows()
    for keys in batches:
        rows.add(np.unique(keys), len(keys))
    return rows


def test_few_distinct_keys_are_counted_exactly():
    rng = np.random.default_rng(0)
    batches = [rng.integers(-500, 500, 300) for _ in range(20)]
    assert counted(batches).seen == len(np.unique(np.concatenate(batches)))


def test_many_distinct_keys_are_counted_within_a_few_thousandths():
    batches = np.arange(2_000_000, dtype=np.int64).reshape(20, -1) * 7
    rows = counted(batches)
    assert rows.seen == pytest.approx(2_000_000, rel=0.02)
    assert len(rows._kept) <= 1 << 16


def test_keys_that_ran_out_are_not_extrapolated():
    rng = np.random.default_rng(0)
    assert counted([rng.integers(0, 100, 5000) for _ in range(16)]).expected(1000) == 100


def test_keys_that_are_always_new_grow_with_the_data():
    rows = counted(np.arange(64_000).reshape(16, -1))
    assert rows.expected(10) == pytest.approx(640_000, rel=0.01)


def test_a_sample_that_is_the_whole_data_is_not_extrapolated():
    assert counted(np.arange(64_000).reshape(16, -1)).expected(1.0) == 64_000


@pytest.mark.parametrize("rows", [3_000, 100_000, 3_000_000], ids="{} rows".format)
def test_rows_of_zipf_data_are_extrapolated_within_a_factor_of_two(rows):
    rng = np.random.default_rng(0)
    whole = zipf(rng, rows, 4_000_000)
    sample = counted(whole[:262_144].reshape(64, -1))
    truth = len(np.unique(whole))
    assert truth / 2 < sample.expected(len(whole) / 262_144) < truth * 2


def test_the_share_of_the_largest_owner_is_that_of_the_keys():
    rows = counted([np.array([0, 4, 8, 1])])
    assert rows.largest_share(4, False) == 0.75
    assert DistinctRows().largest_share(4, False) == 0.25


def test_a_vocabulary_bounds_the_rows():
    table = hotrow.TableConfig("t", 4, vocabulary_size=70_000)
    sample = Sample([hotrow.FeatureConfig("f", table)], 2)
    for keys in np.arange(64_000).reshape(16, -1):
        sample.add({"f": Column(keys)}, len(keys))
    assert sample.facts()["t"].rows == 64_000
    assert sample.facts(total_rows=10**6)["t"].rows == 70_000


def test_tables_that_read_the_same_columns_have_the_same_facts():
    deep, wide = hotrow.TableConfig("C", 8), hotrow.TableConfig("C/wide", 1)
    features = [hotrow.FeatureConfig("C", deep), hotrow.FeatureConfig("C/wide", wide)]
    sample = Sample(features, 3)
    column = Column(zipf(np.random.default_rng(0), 100, 500))
    sample.add({"C": column, "C/wide": column}, 500)
    facts = sample.facts()
    np.testing.assert_array_equal(facts["C"].away_bytes, facts["C/wide"].away_bytes)
    assert (sample.batches, sample.rows) == (1, 500)


def test_the_hottest_key_is_that_of_the_global_batch():
    table = hotrow.TableConfig("t", 4)
    sample = Sample([hotrow.FeatureConfig("f", table)], 2)
    sample.add({"f": Column(np.array([5, 5, 1, 2, 5, 3]))}, 6)
    facts = sample.facts()["t"]
    assert facts.hottest == 0.5
    assert facts.dedup == 5 / 6
    assert facts.seen == facts.rows == 4
