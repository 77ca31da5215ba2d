"""`Part`: the rows of each batch that one of several ranks takes."""

from __future__ import annotations

from dataclasses import dataclass

from hotrow.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Part:
    """Slice `rank` of `size` of each batch: rows [rank n / size, (rank + 1) n / size) of n.

    The slices of all ranks in order are the batch; slices of a short batch may be empty.
    """

    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise InvalidArgumentError(
                f"part {self.rank} of {self.size}; must be in [0, {self.size})"
            )

    def of(self, rows: int) -> slice:
        """Returns the slice of a batch of `rows` rows that is this part."""
        return slice(self.rank * rows // self.size, (self.rank + 1) * rows // self.size)

    def rows_of(self, rows: int) -> int:
        """Returns how many rows of a batch of `rows` rows are this part."""
        own = self.of(rows)
        return int(own.stop - own.start)


WHOLE = Part()
"""All rows."""
