"""The negatives of benchmarks/freshness_pays.py: of the hour before, and the same for each seed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
WINDOW = 50


@pytest.fixture(scope="module", autouse=True)
def benchmarks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "pays"]:
        del sys.modules[name]


def draw(times: Any, articles: Any, seed: int = 1, count: int = 3) -> Any:
    from pays.recent_negatives import draw_negatives

    return draw_negatives(times, articles, count, WINDOW, seed)


@pytest.fixture(scope="module")
def clicks() -> tuple[np.ndarray, np.ndarray]:
    """Times with ties and gaps, and articles of which some come and go."""
    rng = np.random.default_rng(7)
    times = np.cumsum(rng.choice([0, 1, 2, 60], 3000, p=[0.4, 0.4, 0.19, 0.01]))
    return times, rng.zipf(1.5, 3000) % 40 + times // 200


def test_negatives_were_clicked_in_the_window_before_and_are_different(clicks):
    times, articles = clicks
    of_click, negatives = draw(times, articles)
    assert len(negatives) > 5000
    for click in range(len(times)):
        own = negatives[of_click == click]
        before = (times < times[click]) & (times >= times[click] - WINDOW)
        possible = set(articles[before]) - {articles[click]}
        assert set(own) <= possible
        assert len(set(own)) == len(own) == min(3, len(possible))


def test_each_article_of_the_window_is_drawn_equally_often():
    times = np.concatenate([np.zeros(100, np.int64), np.ones(30_000, np.int64)])
    articles = np.concatenate([np.repeat([1, 2, 3, 4, 5], [80, 10, 5, 4, 1]), np.full(30_000, 2)])
    _, negatives = draw(times, articles, count=2)
    drawn, counts = np.unique(negatives, return_counts=True)
    assert drawn.tolist() == [1, 3, 4, 5]
    np.testing.assert_allclose(counts, 15_000, rtol=0.03)


def test_negatives_follow_from_the_seed_and_earlier_clicks_alone(clicks):
    times, articles = clicks
    of_click, negatives = draw(times, articles)
    assert np.array_equal(draw(times, articles)[1], negatives)
    assert not np.array_equal(draw(times, articles, seed=2)[1], negatives)
    changed = articles.copy()
    changed[2000:] += 1000
    assert np.array_equal(draw(times, changed)[1][of_click < 2000], negatives[of_click < 2000])


def test_clicks_of_globo_become_events_in_order(shared):
    from pays.globo_events import BEGIN, FILE, HOUR, read_events

    path = shared / FILE
    events = read_events(path, 24.0, 25.0, seed=1, negatives=3)
    assert events.times.min() >= BEGIN + 24 * HOUR
    assert events.times.max() < BEGIN + 25 * HOUR
    assert (np.diff(events.times) >= 0).all()
    assert events.labels.sum() * 4 == len(events)
    longer = read_events(path, 24.0, 25.5, seed=1, negatives=3).part(0, len(events))
    assert all(np.array_equal(longer.columns[n], own) for n, own in events.columns.items())
