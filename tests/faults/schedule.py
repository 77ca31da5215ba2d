"""What goes wrong, and when: all of it from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

STORE_FAULTS = ("kill", "freeze", "failover", "go back", "restore", "move slots")
"""Of a node of the Redis Cluster; see `store_faults.py`."""
SERVER_FAULTS = ("kill control", "kill executable", "stop control", "stop executable")
"""Of a server's processes."""


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


def schedule(seed: int, seconds: float) -> list[Fault]:
    """Returns the faults of a seed, in the order of their times; they end within `seconds`."""
    chance = random.Random(seed)
    faults = []
    for _ in range(chance.randint(2, 5)):
        kinds = chance.choices((STORE_FAULTS, SERVER_FAULTS), (2, 1))[0]
        lasts = chance.choice((0.1, 0.5, 1.0, 3.0))
        faults.append(
            Fault(
                at=chance.uniform(0.5, seconds - lasts),
                kind=chance.choice(kinds),
                target=chance.randrange(6),
                lasts=lasts,
            )
        )
    return sorted(faults, key=lambda fault: fault.at)
