"""How far rows that a rank keeps of others may lag behind."""

from __future__ import annotations

from dataclasses import dataclass

from hotrow.spec.checks import is_integer, require


@dataclass(frozen=True)
class Staleness:
    """Hot rows of other ranks, kept by each rank: bounded staleness after HET (VLDB 2022).

    A kept row is read as it is while what its owner was told of others since it came is at most
    `updates` updates more than those of the own rank that the owner was not told yet, which a rank
    always reads. A rank tells the owner the sum of its gradients when they are `updates` + 1; the
    owner's optimizer then takes it as one gradient. While an owner counted less than twice
    `updates`, half of its count stands for them.

    Attributes:
        updates: s; a rank's step that has a gradient for the row is one update.
        rows: that each rank keeps of a table. Tables of a layer whose rows have as many weights
            and state values keep theirs together: the hottest of all.
    """

    updates: int
    rows: int

    def __post_init__(self) -> None:
        legal = is_integer(self.updates, 1) and self.updates < 2**20
        require(legal, "Staleness.updates", self.updates, "in [1, 2^20)")
        require(is_integer(self.rows, 1), "Staleness.rows", self.rows, "1 or more")
