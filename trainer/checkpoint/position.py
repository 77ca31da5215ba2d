"""How far a run is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """How far a run is.

    Attributes:
        step: training steps done.
        epoch: the pass over the training file that the next batch belongs to, from 0.
        batch: batches of that pass that are done.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
