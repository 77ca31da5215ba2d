"""The position of a run in its training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a run in its training.

    Attributes:
        step: number of training steps done.
        epoch: the pass over the training file that the next batch belongs to, from 0.
        batch: number of batches done in that pass.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
