"""`RowSkip`: the rows at the beginning of a pass that an earlier process has read already."""

from __future__ import annotations

import pyarrow as pa


class RowSkip:
    """Counts down the rows to leave out.

    Attributes:
        left: rows that are still to be left out.
    """

    def __init__(self, rows: int = 0) -> None:
        """Starts with `rows` to leave out."""
        self.left = rows

    def whole(self, rows: float) -> bool:
        """Leaves out a piece of `rows` rows, if it ends before the position; returns whether."""
        if not self.left or rows > self.left:
            return False
        self.left -= int(rows)
        return True

    def cut(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows of a batch from the position on; there may be none."""
        if not self.left:
            return batch
        start = min(self.left, batch.num_rows)
        self.left -= start
        return batch.slice(start)
