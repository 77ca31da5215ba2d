"""Which run a state of training is of: and whether one state was trained on from another.

Equal configurations train alike, but a run that goes on from an older checkpoint may have seen
other data since. So each start of training gets a random id and the step that it went on from.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Start:
    """A start of training.

    Attributes:
        id: random; no other start has it.
        step: that it went on from; 0 of a new run.
    """

    id: str
    step: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """The starts of training behind a state, the first one first; none: nobody noted them."""

    starts: tuple[Start, ...] = ()

    @property
    def id(self) -> str:
        """Of the last start; "" if there is none."""
        return self.starts[-1].id if self.starts else ""

    def started(self, step: int) -> Lineage:
        """Returns that of a training that goes on from this state, which is of a step."""
        return Lineage((*self.starts, Start(uuid.uuid4().hex, step)))

    def descends_from(self, start: str, step: int) -> bool:
        """Returns whether this state was trained on from, or is, that of a start at a step.

        It is one of a later step, or of the same one.
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
