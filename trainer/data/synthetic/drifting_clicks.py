"""`DriftingClicks`: clicks of a model that changes within minutes, for online learning.

logit = bias + a user's effect + an item's effect + an effect of the user's segment and the item's
category. The last two walk at random around 0 (Ornstein-Uhlenbeck), and new items take the places
of others. So who predicts with an older model is worse, and `logits` is the best score possible.
B events.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np

from hotrow.trainer.data.batch import Ints
from hotrow.trainer.data.synthetic.zipf import Array, Zipf

LABEL = "click"
TIME = "ts"
KEY = "show"
COLUMNS = ("user", "item", "segment", "category")

SEGMENTS = 8
CATEGORIES = 16
_BIAS = -1.7
_USER_DEVIATION = 0.4
_ITEM_DEVIATION = 1.2
_PAIR_DEVIATION = 0.8


@dataclass(frozen=True)
class ClickParameters:
    """What the events follow from.

    Attributes:
        seed: of everything.
        rate: events a second of event time.
        users, items: how many there are at any time.
        skew: of their popularity, Zipf's exponent.
        drift_seconds: time after which 1/e of an item's effect is left.
        new_items_per_second: items that take the place of others.
        start: time of the first event, Unix seconds.
        tick_seconds: the model changes this often.
    """

    seed: int = 0
    rate: float = 1000.0
    users: int = 5000
    items: int = 2000
    skew: float = 1.0
    drift_seconds: float = 300.0
    new_items_per_second: float = 1.0
    start: float = 1_700_000_000.0
    tick_seconds: float = 1.0


@dataclass(frozen=True, eq=False)
class Clicks:
    """B events in the order of their times.

    Attributes:
        times: float64 [B], Unix seconds.
        users, items: int64 [B].
        segments, categories: int64 [B], of the users and of the items.
        logits: float64 [B], of the model that drew the labels.
        labels: int64 [B], 0 or 1.
        first: number of the first of the events, from 0.
    """

    times: Array
    users: Ints
    items: Ints
    segments: Ints
    categories: Ints
    logits: Array
    labels: Ints
    first: int

    def json_lines(self, labelled: bool = True) -> list[bytes]:
        """Returns the events as JSON.

        Args:
            labelled: with their labels; otherwise with the column `KEY`, which `label_lines` has.
        """
        events = []
        for i, moment in enumerate(self.times.tolist()):
            event: dict[str, object] = {TIME: round(moment, 6)}
            for name, values in zip(COLUMNS, self._keys(), strict=True):
                event[name] = f"{name[0]}{values[i]}"
            if labelled:
                event[LABEL] = int(self.labels[i])
            else:
                event[KEY] = self.first + i
            events.append(json.dumps(event).encode())
        return events

    def label_lines(self, delays: Array) -> list[tuple[float, bytes]]:
        """Returns time and JSON of the labels of the clicked events.

        Args:
            delays: float64 [B], seconds from an event to its click.
        """
        found = []
        for i in np.flatnonzero(self.labels).tolist():
            moment = round(float(self.times[i] + delays[i]), 6)
            label = {TIME: moment, KEY: self.first + i, LABEL: 1}
            found.append((moment, json.dumps(label).encode()))
        return found

    def _keys(self) -> tuple[list[int], ...]:
        columns = (self.users, self.items, self.segments, self.categories)
        return tuple(column.tolist() for column in columns)


class DriftingClicks:
    """The model and its events, tick by tick. Equal parameters give equal events."""

    def __init__(self, parameters: ClickParameters) -> None:
        """Draws the model at the start."""
        self._parameters = parameters
        rng = np.random.default_rng([parameters.seed, 0])
        self._user_law = Zipf(parameters.users, parameters.skew)
        self._item_law = Zipf(parameters.items, parameters.skew)
        self._user_effects = _USER_DEVIATION * rng.standard_normal(parameters.users)
        self._segments = rng.integers(SEGMENTS, size=parameters.users)
        self._item_effects = _ITEM_DEVIATION * rng.standard_normal(parameters.items)
        self._pair_effects = _PAIR_DEVIATION * rng.standard_normal((SEGMENTS, CATEGORIES))
        self._items: Ints = np.arange(parameters.items, dtype=np.int64)  # by popularity
        self._known = parameters.items
        self._ticks = 0
        self._events = 0

    @property
    def now(self) -> float:
        """Time of the next tick, Unix seconds."""
        return self._parameters.start + self._ticks * self._parameters.tick_seconds

    def tick(self) -> Clicks:
        """Returns the events of one tick, and lets the model change."""
        parameters = self._parameters
        rng = np.random.default_rng([parameters.seed, 1, self._ticks])
        last = math.floor((self._ticks + 1) * parameters.tick_seconds * parameters.rate)
        count = last - self._events
        times = parameters.start + np.arange(self._events, last) / parameters.rate
        users = self._user_law.draw(rng.random(count))
        places = self._item_law.draw(rng.random(count))
        items = self._items[places]
        segments, categories = self._segments[users], items % CATEGORIES
        logits = (
            _BIAS
            + self._user_effects[users]
            + self._item_effects[places]
            + self._pair_effects[segments, categories]
        )
        labels = (rng.random(count) < 1.0 / (1.0 + np.exp(-logits))).astype(np.int64)
        first = self._events
        self._events = last
        self._ticks += 1
        self._drift(rng)
        return Clicks(times, users, items, segments, categories, logits, labels, first)

    def logits(self, clicks: Clicks) -> Array:
        """Returns the logits float64 [B] of events by the model as it is now.

        An item that it does not know weighs nothing.
        """
        order = np.argsort(self._items)
        found = np.minimum(np.searchsorted(self._items, clicks.items, sorter=order), len(order) - 1)
        places = order[found]
        known = self._items[places] == clicks.items
        return np.asarray(
            _BIAS
            + self._user_effects[clicks.users]
            + np.where(known, self._item_effects[places], 0.0)
            + self._pair_effects[clicks.segments, clicks.categories]
        )

    def _drift(self, rng: np.random.Generator) -> None:
        parameters = self._parameters
        kept = math.exp(-parameters.tick_seconds / parameters.drift_seconds)
        fresh = math.sqrt(1.0 - kept * kept)
        for effects, deviation in (
            (self._item_effects, _ITEM_DEVIATION),
            (self._pair_effects, _PAIR_DEVIATION),
        ):
            effects *= kept
            effects += fresh * deviation * rng.standard_normal(effects.shape)
        count = rng.poisson(parameters.new_items_per_second * parameters.tick_seconds)
        # As many new items among the 10 most popular as among the next 90.
        places = np.floor(parameters.items ** rng.random(count)).astype(np.int64) - 1
        for place in places.tolist():
            self._items[place] = self._known
            self._item_effects[place] = _ITEM_DEVIATION * rng.standard_normal()
            self._known += 1
