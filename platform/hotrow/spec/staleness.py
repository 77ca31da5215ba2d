"""How far a rank's replicas of other ranks' rows may lag behind."""

from __future__ import annotations

from dataclasses import dataclass

from hotrow.spec.checks import is_integer, require


@dataclass(frozen=True)
class Staleness:
    """Replicas of other ranks' hot rows on each rank: bounded staleness after HET (VLDB 2022).

    A rank may use a replica until the updates of other ranks at its owner, since the replica was
    fetched, exceed the rank's own pending updates by more than `updates`. A rank's own updates
    apply to its replica at once. A rank sends the sum of its gradients to the owner once it has
    `updates` + 1; the owner's optimizer takes the sum as one gradient. While the owner has counted
    less than twice `updates`, half of its count stands for the updates of other ranks.

    Attributes:
        updates: s; a rank's step with a gradient for the row is one update.
        rows: replicas on each rank, for one table. Tables of a layer whose rows have the same
            number of weights and state values share theirs, for the hottest rows of all.
    """

    updates: int
    rows: int

    def __post_init__(self) -> None:
        legal = is_integer(self.updates, 1) and self.updates < 2**20
        require(legal, "Staleness.updates", self.updates, "in [1, 2^20)")
        require(is_integer(self.rows, 1), "Staleness.rows", self.rows, "1 or more")
