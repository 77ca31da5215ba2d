"""Clicks of `DriftingClicks` as `Events`, with the logits of the model that drew them."""

from __future__ import annotations

from hotrow.trainer.data.synthetic.drifting_clicks import ClickParameters, DriftingClicks
from pays.events import Events, joined

COLUMNS = ("user", "item", "segment", "category")


def make_events(parameters: ClickParameters, hours: float) -> Events:
    """Returns the events of the first hours."""
    clicks = DriftingClicks(parameters)
    end = parameters.start + hours * 3600.0
    parts = []
    while clicks.now < end:
        made = clicks.tick()
        keys = (made.users, made.items, made.segments, made.categories)
        columns = dict(zip(COLUMNS, keys, strict=True))
        parts.append(Events(made.times, made.labels, columns, made.logits))
    return joined(parts)
