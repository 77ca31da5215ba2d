"""`Case`: a data set, the hours of it that are replayed, and the model that learns them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hotrow.trainer.data.synthetic.drifting_clicks import ClickParameters
from pays import generated_events, globo_events
from pays.events import Events

HOUR = 3600.0
SHARED = Path(os.environ.get("SHARED") or Path(__file__).resolve().parents[3] / "shared")

GLOBO_NEGATIVES = 3
GLOBO_BASE_HOURS = (24.0, 56.0)  # 2017-10-02 00:00 to 10-03 08:00 in Brazil
GENERATED_BASE_HOURS = 10.0
DRIFT = ClickParameters(
    rate=14.0,
    users=2000,
    items=500,
    drift_seconds=2 * HOUR,
    new_items_per_second=0.01,
    tick_seconds=5.0,
)
"""After 2 hours, 1/e of an item's effect is left; 36 new items an hour take the place of others."""


@dataclass(frozen=True)
class Case:
    """A data set.

    Attributes:
        name: of it.
        columns: keys of an event.
        tables: `tables.default` of the configuration.
        make: (seed, hours) -> events of the base, events that are replayed, and the full hour at
            which the latter begin, Unix seconds.
    """

    name: str
    columns: tuple[str, ...]
    tables: str
    make: Callable[[int, int], tuple[Events, Events, float]]


def globo(seed: int, hours: int) -> tuple[Events, Events, float]:
    """Returns clicks of Globo.com with negatives: 32 hours, and the hours after them."""
    path = SHARED / globo_events.FILE
    if not path.is_file():
        raise SystemExit(f"{path} is not there; set SHARED to the folder of shared data sets")
    first, middle = GLOBO_BASE_HOURS
    events = globo_events.read_events(path, first, middle + hours, seed, GLOBO_NEGATIVES)
    border = globo_events.BEGIN + middle * HOUR
    return events.between(0.0, border), events.between(border, float("inf")), border


def generated(seed: int, hours: int) -> tuple[Events, Events, float]:
    """Returns generated clicks: 10 hours, and the hours after them."""
    parameters = dataclasses.replace(DRIFT, seed=seed)
    events = generated_events.make_events(parameters, GENERATED_BASE_HOURS + hours)
    border = parameters.start + GENERATED_BASE_HOURS * HOUR
    return events.between(0.0, border), events.between(border, float("inf")), border


# Tables were chosen on events that are not replayed; see benchmarks/results/updates.md.
CASES = {
    case.name: case
    for case in (
        Case("globo", globo_events.COLUMNS, "{optimizer: adagrad, learning_rate: 0.2}", globo),
        Case(
            "generated", generated_events.COLUMNS, "{optimizer: sgd, learning_rate: 0.5}", generated
        ),
    )
}
