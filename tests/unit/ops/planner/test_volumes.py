"""The formulas of every scheme against messages that were built and counted."""

from __future__ import annotations

import numpy as np
import pytest
from unit.ops.planner.simulated_messages import Column, messages, totals
from unit.ops.planner.workloads import WORKLOADS, batch_of, features_of, one_hot, zipf

from hotrow.ops.planner import SCHEMES, Sample, volume
from hotrow.ops.planner.owners import owners_of


def facts_of(batches, size, ranks, dim, hash_owner=False):
    features = features_of(batches[0], dim, hash_owner)
    sample = Sample(features, ranks)
    for columns in batches:
        sample.add(batch_of(features, columns), size)
    return sample.facts()["t"]


def counted(scheme, columns, size, ranks, dim, **options):
    pooled = [combiner is not None for _, combiner in columns]
    sent = messages(scheme, [c for c, _ in columns], pooled, size, ranks, dim, **options)
    return totals(sent, ranks)


@pytest.mark.parametrize("size", [64, 3, 0], ids="{} samples".format)
@pytest.mark.parametrize("ranks", [1, 2, 5], ids="{} ranks".format)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_step_sends_what_the_messages_have(scheme, workload, ranks, size):
    columns = workload(np.random.default_rng(ranks), size)
    facts = facts_of([columns], size, ranks, 7)
    owners = range(ranks) if scheme == "table" else [0]
    for owner in owners:
        moved = volume(scheme, facts, 7, owner)
        sent, received = counted(scheme, columns, size, ranks, 7, owner=owner)
        np.testing.assert_array_equal(moved.sent, [sent])
        np.testing.assert_array_equal(moved.received, [received])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_mixed_keys_have_other_owners(scheme):
    columns = one_hot(np.random.default_rng(0), 200)
    moved = volume(scheme, facts_of([columns], 200, 4, 4, hash_owner=True), 4)
    owner_of = dict(zip(range(300), owners_of(np.arange(300), 4, True).tolist(), strict=True))
    sent, received = counted(scheme, columns, 200, 4, 4, owner_of=owner_of.get)
    np.testing.assert_array_equal(moved.sent, [sent])
    np.testing.assert_array_equal(moved.received, [received])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_batch_has_its_own_bytes(scheme):
    rng = np.random.default_rng(5)
    batches = [one_hot(rng, 100) for _ in range(3)]
    moved = volume(scheme, facts_of(batches, 100, 3, 6), 6)
    every = [counted(scheme, columns, 100, 3, 6) for columns in batches]
    np.testing.assert_array_equal(moved.sent, [sent for sent, _ in every])
    np.testing.assert_array_equal(moved.received, [got for _, got in every])
    busiest = [np.maximum(*sides).sum(axis=0).max() for sides in every]
    assert moved.busiest == pytest.approx(np.mean(busiest))


def test_sums_of_whole_rows_are_added_over_the_columns():
    columns = one_hot(np.random.default_rng(0), 200)
    facts = facts_of([columns], 200, 4, 8)
    union = len(np.unique(columns[0][0].keys))
    more = volume("column", facts, 8, whole_row_sums=2).sent - volume("column", facts, 8).sent
    assert more[0, 3].tolist() == pytest.approx([2 * 2 * 4 * union * 3 / 4] * 4)
    assert not more[0, :3].any()
    plain = volume("row", facts, 8).sent
    np.testing.assert_array_equal(volume("row", facts, 8, whole_row_sums=2).sent, plain)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_byte_that_is_sent_is_received(scheme):
    columns = one_hot(np.random.default_rng(5), 64)
    moved = volume(scheme, facts_of([columns], 64, 4, 6), 6)
    np.testing.assert_allclose(moved.sent.sum(axis=2), moved.received.sum(axis=2))


def test_the_load_of_a_rank_is_the_larger_direction_of_each_stage():
    columns = one_hot(np.random.default_rng(5), 64)
    moved = volume("table", facts_of([columns], 64, 4, 6), 6, owner=2)
    expected = [
        max(s, r) for s, r in zip(moved.sent[0, :, 2], moved.received[0, :, 2], strict=True)
    ]
    assert moved.load[0, 2] == moved.busiest == sum(expected)


@pytest.mark.parametrize(("keys", "owners"), [([-1, -4, 7, 0], [3, 0, 3, 0])])
def test_the_owner_of_a_negative_key_is_the_mathematical_modulus(keys, owners):
    assert owners_of(np.array(keys), 4, False).tolist() == owners


def test_the_owner_of_a_mixed_key_is_that_of_the_core():
    # mix64(mix64(key)) % 5 of core/base/hash.h, compiled.
    keys = np.array([0, 1, -1, 2**62, -(2**63), 12345], np.int64)
    assert owners_of(keys, 5, True).tolist() == [0, 3, 2, 0, 1, 0]


@pytest.mark.parametrize("ranks", [2, 4, 8], ids="{} ranks".format)
@pytest.mark.parametrize("dim", [16, 128], ids="dim {}".format)
def test_many_keys_move_what_the_reference_says(ranks, dim):
    """F features of batch B: A, B and C of OneFlow's Wide & Deep, times (N-1)/N."""
    size, features = 4096, 3
    rng = np.random.default_rng(1)
    columns = [(Column(zipf(rng, 100_000, size)), "sum") for _ in range(features)]
    facts = facts_of([columns], size, ranks, dim)
    lookups, stays = size * features, (ranks - 1) / ranks
    d = facts.dedup
    reference = {
        "column": 8 * lookups + 8 * lookups * dim / ranks,
        "row_broadcast": 8 * lookups + 8 * lookups * dim,
        "row": d * (8 * lookups / ranks + 8 * lookups * dim / ranks),
    }
    for scheme, expected in reference.items():
        sent = volume(scheme, facts, dim).sent[0].sum(axis=0)
        assert sent.mean() == pytest.approx(stays * expected, rel=0.02)
        assert sent.max() == pytest.approx(stays * expected, rel=0.05)
