"""Clicks of a drifting model: the newest model scores best, and equal seeds give equal events."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from hotrow.trainer.data.synthetic.drifting_clicks import ClickParameters, Clicks, DriftingClicks

PARAMETERS = ClickParameters(rate=2000.0, users=500, items=300)


def auc(scores: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> float:
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores)] = np.arange(1, len(scores) + 1)
    positives = int(labels.sum())
    above = ranks[labels == 1].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(labels) - positives)))


def ticks(model: DriftingClicks, count: int) -> Clicks:
    """Returns the events of several ticks."""
    made = [model.tick() for _ in range(count)]
    fields = [
        np.concatenate([getattr(one, name) for one in made])
        for name in ("times", "users", "items", "segments", "categories", "logits", "labels")
    ]
    return Clicks(*fields, first=made[0].first)


@pytest.mark.parametrize("seed", [0, 1])
def test_an_older_model_scores_worse_the_older_it_is(seed: int) -> None:
    model = DriftingClicks(replace(PARAMETERS, seed=seed))
    aucs = []
    old = copy.deepcopy(model)
    for seconds in (0, 60, 600):
        while model.now < PARAMETERS.start + seconds:
            model.tick()
        newest = ticks(model, 10)
        aucs.append(auc(old.logits(newest), newest.labels))
        best = auc(newest.logits, newest.labels)
        assert 0.75 < best < 0.92
        assert aucs[-1] < best + 1e-9
    assert aucs[0] > aucs[1] + 0.01 > aucs[2] + 0.04
    assert aucs[2] < 0.7


def test_about_a_fifth_is_clicked_by_the_probability_of_its_logit() -> None:
    made = ticks(DriftingClicks(PARAMETERS), 30)
    assert 0.1 < made.labels.mean() < 0.35
    expected = 1 / (1 + np.exp(-made.logits))
    for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 1.0)):
        inside = (expected >= low) & (expected < high)
        assert abs(made.labels[inside].mean() - expected[inside].mean()) < 0.02


def test_events_come_at_their_rate() -> None:
    model = DriftingClicks(replace(PARAMETERS, rate=12.5, tick_seconds=0.1))
    made = ticks(model, 100)
    np.testing.assert_allclose(made.times, PARAMETERS.start + np.arange(125) / 12.5)
    assert model.now == pytest.approx(PARAMETERS.start + 10)
    assert made.first == 0
    assert model.tick().first == 125


def test_popular_items_are_seen_most_and_new_ones_appear() -> None:
    model = DriftingClicks(PARAMETERS)
    first = ticks(model, 20)
    counts = np.bincount(first.items, minlength=400)
    assert counts[:10].sum() > 0.3 * len(first.items)
    later = ticks(model, 100)
    new = later.items >= PARAMETERS.items
    assert 0.02 < new.mean() < 0.9


def test_equal_seeds_give_equal_events_and_others_do_not() -> None:
    events = [
        [line for _ in range(3) for line in model.tick().json_lines()]
        for model in (
            DriftingClicks(PARAMETERS),
            DriftingClicks(PARAMETERS),
            DriftingClicks(replace(PARAMETERS, seed=1)),
        )
    ]
    assert events[0] == events[1]
    assert events[0] != events[2]


def test_lines_are_events_or_labels_of_their_own() -> None:
    made = DriftingClicks(PARAMETERS).tick()
    labelled = [json.loads(line) for line in made.json_lines()]
    assert [one["click"] for one in labelled] == made.labels.tolist()
    assert labelled[5] == {
        "ts": PARAMETERS.start + 0.0025,
        "user": f"u{made.users[5]}",
        "item": f"i{made.items[5]}",
        "segment": f"s{made.segments[5]}",
        "category": f"c{made.categories[5]}",
        "click": made.labels[5],
    }
    rows = [json.loads(line) for line in made.json_lines(labelled=False)]
    assert [one["show"] for one in rows] == list(range(2000))
    assert "click" not in rows[0]
    labels = made.label_lines(np.full(2000, 2.5))
    found = {json.loads(line)["show"] for _, line in labels}
    assert found == set(np.flatnonzero(made.labels).tolist())
    moment, line = labels[0]
    assert json.loads(line) == {"ts": moment, "show": min(found), "click": 1}
    assert moment == pytest.approx(made.times[min(found)] + 2.5)
