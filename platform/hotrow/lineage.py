"""The lineage of a training state: whether it was trained on from another state.

Runs with equal configurations train alike, but a run that continues from an older checkpoint may
have read other data since. So each start of training gets a random id and the step where it
started.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Start:
    """A start of training.

    Attributes:
        id: random and unique.
        step: the step from which it continued; 0 for a new run.
    """

    id: str
    step: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """The starts of training behind a state, the first one first; empty if unknown."""

    starts: tuple[Start, ...] = ()

    @property
    def id(self) -> str:
        """Id of the last start; "" if there is none."""
        return self.starts[-1].id if self.starts else ""

    def started(self, step: int) -> Lineage:
        """Returns the lineage of a training that continues from this state at `step`."""
        return Lineage((*self.starts, Start(uuid.uuid4().hex, step)))

    def descends_from(self, start: str, step: int) -> bool:
        """Returns whether this state is, or continues from, the state of the given start at `step`.

        This state's step is `step` or a later one.
        """
        ids = [known.id for known in self.starts]
        if start not in ids:
            return False
        later = self.starts[ids.index(start) + 1 :]
        return all(known.step >= step for known in later)

    def as_json(self) -> list[dict[str, Any]]:
        """Returns JSON types."""
        return [{"id": start.id, "step": start.step} for start in self.starts]

    @classmethod
    def of_json(cls, starts: list[dict[str, Any]]) -> Lineage:
        """Returns what `as_json` wrote."""
        return cls(tuple(Start(start["id"], start["step"]) for start in starts))
