"""Streaming metrics against definitions written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow.errors import InvalidArgumentError
from hotrow.trainer.metrics import BinaryMetrics, StreamingAuc, auc_from_counts

labelled_scores = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0]), st.floats(-10, 10, width=32)), max_size=60
)


def auc_by_pairs(labels, scores):
    """The definition: the share of (positive, negative) pairs in the right order, ties half."""
    pairs = [
        1.0 if p > n else 0.5 if p == n else 0.0
        for p in scores[labels == 1]
        for n in scores[labels == 0]
    ]
    return sum(pairs) / len(pairs) if pairs else math.nan


@settings(deadline=None)
@given(labelled_scores, st.integers(1, 7))
def test_auc_equals_the_share_of_ordered_pairs_however_the_rows_are_cut(rows, pieces):
    labels = np.array([label for label, _ in rows])
    scores = np.array([score for _, score in rows])
    auc = StreamingAuc()
    for part in np.array_split(np.arange(len(rows)), pieces):
        auc.update(labels[part], scores[part])
    np.testing.assert_allclose(auc.result(), auc_by_pairs(labels, scores), atol=1e-12)
    assert auc.error_bound() == 0


@settings(max_examples=50, deadline=None)
@given(labelled_scores)
def test_the_histogram_is_off_by_at_most_its_own_bound(rows):
    labels = np.array([label for label, _ in rows])
    scores = np.array([score for _, score in rows])
    auc = StreamingAuc(exact_rows=5)
    for i in range(len(rows)):
        auc.update(labels[i : i + 1], scores[i : i + 1])
    expected = auc_by_pairs(labels, scores)
    if math.isnan(expected):
        assert math.isnan(auc.result())
    else:
        assert abs(auc.result() - expected) <= auc.error_bound() + 1e-12


@pytest.mark.parametrize(("bins", "most"), [(2**20, 2e-5), (2**16, 2e-4)])
def test_the_histogram_of_many_rows_is_near_the_exact_auc(bins, most):
    random = np.random.default_rng(1)
    labels = (random.random(200_000) < 0.3).astype(np.float32)
    scores = random.normal(size=200_000) + labels
    exact, binned = StreamingAuc(exact_rows=10**6), StreamingAuc(1000, bins)
    for part in np.array_split(np.arange(200_000), 50):
        exact.update(labels[part], scores[part])
        binned.update(labels[part], scores[part])
    assert 0 < binned.error_bound() < most
    assert abs(exact.result() - binned.result()) <= binned.error_bound()


def test_infinite_logits_are_ranked_in_both_forms():
    labels, scores = np.array([1.0, 0.0, 1.0]), np.array([np.inf, -np.inf, 0.0])
    for exact_rows in (10, 1):
        auc = StreamingAuc(exact_rows)
        auc.update(labels, scores)
        assert auc.result() == 1.0


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_auc_of_one_label_only_is_nan(label):
    auc = StreamingAuc()
    auc.update(np.full(3, label), np.arange(3.0))
    assert math.isnan(auc.result())


def test_auc_of_no_rows_is_nan():
    assert math.isnan(StreamingAuc().result())
    assert math.isnan(auc_from_counts(np.zeros(4), np.zeros(4)))


def test_logloss_and_calibration_follow_their_definitions():
    labels = np.array([1, 0, 0, 1, 0], np.float32)
    logits = np.array([2.0, -1.0, 0.5, -3.0, 0.0], np.float32)
    probability = 1 / (1 + np.exp(-logits.astype(np.float64)))
    quality = BinaryMetrics()
    quality.update(labels[:2], logits[:2])
    quality.update(labels[2:], logits[2:])
    result = quality.result()
    expected = -np.mean(labels * np.log(probability) + (1 - labels) * np.log(1 - probability))
    assert result.rows == 5
    assert result.logloss == pytest.approx(expected, abs=1e-12)
    assert result.calibration == pytest.approx(probability.sum() / 2)
    assert result.label_mean == pytest.approx(0.4)


def test_large_logits_do_not_overflow():
    metrics = BinaryMetrics()
    metrics.update(np.array([1.0, 0.0]), np.array([-1000.0, -1000.0]))
    assert metrics.result().logloss == pytest.approx(500.0)


def test_probabilities_and_logits_give_the_same_metrics():
    random = np.random.default_rng(2)
    labels = (random.random(500) < 0.5).astype(np.float32)
    logits = random.normal(size=500)
    by_logit, by_probability = BinaryMetrics(), BinaryMetrics()
    by_logit.update(labels, logits)
    by_probability.update_probabilities(labels, 1 / (1 + np.exp(-logits)))
    for one, other in zip(
        by_logit.result().as_dict().values(),
        by_probability.result().as_dict().values(),
        strict=True,
    ):
        assert one == pytest.approx(other, abs=1e-9)


def test_certain_probabilities_give_a_finite_logloss():
    metrics = BinaryMetrics()
    metrics.update_probabilities(np.array([1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0], np.float32))
    assert 5 < metrics.result().logloss < 6
    assert metrics.result().auc == 0.75


def test_no_rows_give_nan_metrics():
    result = BinaryMetrics().result()
    assert result.rows == 0
    assert all(math.isnan(v) for k, v in result.as_dict().items() if k != "rows")


@pytest.mark.parametrize(
    ("labels", "logits", "message"),
    [
        ([0.5], [0.0], "label 0.5 is neither 0 nor 1"),
        ([1.0], [float("nan")], "logit is NaN in row 0"),
        ([1.0, 0.0], [1.0], "shape"),
    ],
)
def test_rows_that_cannot_be_measured_are_refused(labels, logits, message):
    with pytest.raises(InvalidArgumentError, match=message):
        BinaryMetrics().update(np.array(labels), np.array(logits))


@pytest.mark.parametrize("probability", [-0.1, 1.5])
def test_a_probability_outside_of_0_and_1_is_refused(probability):
    with pytest.raises(InvalidArgumentError, match="is this output a logit"):
        BinaryMetrics().update_probabilities(np.array([1.0]), np.array([probability]))


@pytest.mark.parametrize("exact_rows", [1000, 100, 30], ids=["rows", "from rows to bins", "bins"])
def test_sums_that_were_put_away_go_on_to_the_last_bit(exact_rows):
    random = np.random.default_rng(4)
    batches = [(random.random(20) < 0.4, random.normal(size=20)) for _ in range(9)]
    straight = BinaryMetrics(exact_rows)
    for labels, logits in batches:
        straight.update(labels, logits)
    parts = BinaryMetrics(exact_rows)
    parts.update(*batches[0])
    for labels, logits in batches[1:]:
        state = {name: array.copy() for name, array in parts.state().items()}
        parts.update(labels, logits)  # does not reach what was put away
        parts = BinaryMetrics(exact_rows)
        parts.update(labels, logits)  # is replaced
        parts.set_state(state)
        parts.update(labels, logits)
    assert parts.result() == straight.result()


def test_sums_of_nothing_can_be_put_away():
    metrics = BinaryMetrics()
    metrics.update(np.ones(3), np.zeros(3))
    metrics.set_state(BinaryMetrics().state())
    assert metrics.result().rows == 0
