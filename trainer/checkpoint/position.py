"""The position of a run in its training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

Online = dict[str, Any]
"""Where online training goes on, as JSON values: positions in the source, what was published."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a run in its training.

    Attributes:
        step: number of training steps done.
        epoch: the pass over the training file that the next batch belongs to, from 0.
        batch: number of batches done in that pass.
        legs: with `data.order: sharded`, the numbers of ranks that read the pass before the run was
            resumed with another: (ranks, batches), the first one first.
        online: where online training goes on; None: the run trains on files.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    legs: tuple[tuple[int, int], ...] = ()
    online: Online | None = None

    @property
    def batch_of_leg(self) -> int:
        """Number of batches done in the pass by the present number of ranks."""
        return self.batch - sum(batches for _, batches in self.legs)

    def after(self, ranks: int) -> Position:
        """Returns the position for another number of ranks, after `ranks` came this far."""
        if not self.batch_of_leg:
            return self
        return replace(self, legs=(*self.legs, (ranks, self.batch_of_leg)))

    def as_json(self) -> dict[str, Any]:
        """Returns JSON values; without legs as older versions read them."""
        facts: dict[str, Any] = {"step": self.step, "epoch": self.epoch, "batch": self.batch}
        if self.legs:
            facts["legs"] = [list(leg) for leg in self.legs]
        if self.online is not None:
            facts["online"] = self.online
        return facts

    @classmethod
    def of_json(cls, facts: dict[str, Any]) -> Position:
        """Returns the position that `as_json` wrote."""
        legs = tuple((ranks, batches) for ranks, batches in facts.get("legs", ()))
        return cls(facts["step"], facts["epoch"], facts["batch"], legs, facts.get("online"))
