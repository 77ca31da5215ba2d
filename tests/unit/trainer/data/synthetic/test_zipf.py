"""Zipf-like ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.trainer.data.synthetic.zipf import Zipf


@given(st.integers(1, 10**9), st.floats(0, 4), st.floats(0, 1, exclude_max=True))
def test_every_rank_is_a_rank(keys: int, skew: float, uniform: float) -> None:
    (rank,) = Zipf(keys, skew).draw(np.array([uniform]))
    assert 0 <= rank < keys


@given(st.integers(1, 2000), st.floats(0, 4))
def test_probabilities_sum_to_one_and_fall(keys: int, skew: float) -> None:
    probability = Zipf(keys, skew).probability(np.arange(keys))
    assert probability.sum() == pytest.approx(1.0)
    assert (np.diff(probability) <= 1e-12).all()


@pytest.mark.parametrize("skew", [0.0, 0.8, 1.0, 1.05, 2.0])
def test_drawn_ranks_follow_the_probabilities(skew: float) -> None:
    zipf = Zipf(50, skew)
    draws = 400_000
    counts = np.bincount(zipf.draw(np.random.default_rng(3).random(draws)), minlength=50)
    expected = zipf.probability(np.arange(50)) * draws
    deviation = (counts - expected) / np.sqrt(expected)
    assert np.abs(deviation).max() < 5


def test_far_ranks_fall_like_zipfs_law() -> None:
    probability = Zipf(10**6, 1.05).probability(np.array([999, 1999]))
    assert probability[0] / probability[1] == pytest.approx(2**1.05, rel=1e-3)
