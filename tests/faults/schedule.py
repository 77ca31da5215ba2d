"""What goes wrong, and when: all of it from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

STORE_FAULTS = (
    *("kill", "freeze", "failover", "go back", "restore", "move slots"),
    *("fill node disk", "fill node memory"),
)
"""Of a node of the Redis Cluster; see `store_faults.py`."""
NETWORK_FAULTS = ("delay", "drop", "cut", "half close")
"""Of the way to a node; see `network.py`."""
SERVER_FAULTS = (
    *("kill control", "kill executable", "stop control", "stop executable"),
    "fill server disk",
)
"""Of a server; see `server_faults.py`."""
CLOCK_FAULTS = ("move node clock", "move server clock", "move exporter clock")
"""See `clocks.py`."""
KINDS = STORE_FAULTS + NETWORK_FAULTS + SERVER_FAULTS + CLOCK_FAULTS
"""Of a world with an exporter; see `world.py`."""
TRAINER_FAULTS = (
    *("kill trainer", "stop trainer", "start second trainer", "fill trainer disk"),
    *("kill folder", "stop folder"),
)
"""Of a trainer that learns online, and of its process that folds cuts; see `supervised.py`."""
SOURCE_FAULTS = (
    *("kill source", "freeze source"),
    *("send bad events", "send late events", "send events again"),
)
"""Of the stream that it reads; see `counted_events.py`."""
TRAINER_KINDS = KINDS + TRAINER_FAULTS + SOURCE_FAULTS
"""Of a world with such a trainer, whose clock is the exporter's; see `trainer_world.py`."""

DECK = 5
"""Schedules 5 n to 5 n + 4 have each kind of `KINDS` at least once."""
TRAINER_DECK = 10
"""Schedules 10 n to 10 n + 9 have each kind of `TRAINER_KINDS` at least once."""
_MORE = 2  # at most, beside a schedule's part of the deck
_DURATIONS = (0.1, 0.5, 1.0, 3.0)
_TARGETS = 12  # a multiple of the nodes, servers and their variants


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        at: seconds after the start of the schedule.
        kind: one of the above.
        target: number of the node or the server, modulo how many there are.
        lasts: seconds until it is lifted, for those that are.
    """

    at: float
    kind: str
    target: int
    lasts: float

    def __str__(self) -> str:
        return f"{self.at:5.1f} s: {self.kind} {self.target} for {self.lasts:.1f} s"


def schedule(
    seed: int, seconds: float, kinds: Sequence[str] = KINDS, deck: int = DECK
) -> list[Fault]:
    """Returns the faults of a seed, in the order of their times; they end within `seconds`.

    Args:
        seed: of the schedule.
        seconds: how long it lasts.
        kinds: of faults.
        deck: how many schedules have each kind at least once.
    """
    dealt = list(kinds)
    random.Random(f"deck {seed // deck}").shuffle(dealt)
    chance = random.Random(seed)
    chosen = dealt[seed % deck :: deck] + chance.choices(kinds, k=chance.randint(0, _MORE))
    faults = []
    for kind in chosen:
        lasts = chance.choice([d for d in _DURATIONS if d < seconds - 1.0])
        at = chance.uniform(0.5, seconds - lasts)
        faults.append(Fault(at, kind, chance.randrange(_TARGETS), lasts))
    return sorted(faults, key=lambda fault: fault.at)


def schedule_of(world: str, seed: int, seconds: float) -> list[Fault]:
    """Returns the faults of a seed in a world with an `exporter` or a `trainer`."""
    if world == "trainer":
        return schedule(seed, seconds, TRAINER_KINDS, TRAINER_DECK)
    return schedule(seed, seconds)
