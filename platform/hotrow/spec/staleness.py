"""How far the replicas that a rank caches of others' rows may lag behind."""

from __future__ import annotations

from dataclasses import dataclass

from hotrow.spec.checks import is_integer, require


@dataclass(frozen=True)
class Staleness:
    """Replicas of other ranks' hot rows in each rank: bounded staleness after HET (VLDB 2022).

    A rank may use a replica until other ranks' updates at its owner, since the replica came,
    exceed the rank's own pending ones by more than `updates`. Its own updates it sees at once. A
    rank sends the owner the sum of its gradients when they are `updates` + 1; the owner's
    optimizer takes it as one gradient. While an owner counted less than twice `updates`, half of
    its count stands for them.

    Attributes:
        updates: s; a rank's step that has a gradient for the row is one update.
        rows: replicas in each rank, for one table. Tables of a layer whose rows have as many
            weights and state values share theirs: the hottest rows of all.
    """

    updates: int
    rows: int

    def __post_init__(self) -> None:
        legal = is_integer(self.updates, 1) and self.updates < 2**20
        require(legal, "Staleness.updates", self.updates, "in [1, 2^20)")
        require(is_integer(self.rows, 1), "Staleness.rows", self.rows, "1 or more")
