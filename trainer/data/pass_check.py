"""`PassCheck`: what a whole pass over one file or several must have had."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from hotrow.config import DataConfig
from hotrow.trainer.data.errors import DataError
from hotrow.trainer.data.malformed import Malformed


class PassCheck:
    """Counts the rows and the positive labels of a pass; refuses a pass without.

    Several files are judged together: one of them may be empty, or have label 0 only.

    Attributes:
        rows: number of rows so far.
        positives: number of those with label 1; of rows without labels, all.
    """

    def __init__(self, paths: Sequence[Path], data: DataConfig) -> None:
        """Starts a pass.

        Args:
            paths: the files, for messages.
            data: their format.
        """
        self._paths = paths
        self._positive = data.positive
        self.rows, self.positives = 0, 0

    def add(self, batch: pa.RecordBatch, has_labels: bool) -> None:
        """Counts rows; their labels are the first column, if they have any."""
        rows = batch.num_rows
        self.rows += rows
        self.positives += int(np.sum(batch.column(0).to_numpy())) if has_labels else rows

    def end(self, left_out: Malformed) -> None:
        """Ends the pass.

        Args:
            left_out: the malformed lines of the pass.

        Raises:
            DataError: no file had a row, or no label was `data.positive`.
        """
        if not self.rows:
            raise DataError(no_row(self._paths, left_out))
        if not self.positives and self._positive is not None:
            raise DataError(f"{shown_paths(self._paths)}: {no_positive(self._positive, self.rows)}")


def no_row(paths: Sequence[Path], left_out: Malformed = Malformed()) -> str:  # noqa: B008 (frozen)
    """Returns the message that files have no row."""
    malformed = f"; left out: {left_out}" if left_out.count else ""
    if len(paths) == 1:
        return f"{paths[0]} has no row to read{malformed}"
    return f"{shown_paths(paths)}: no row to read in any of them{malformed}"


def no_positive(positive: str, rows: int) -> str:
    """Returns the message that no label of rows is the text that means 1."""
    return (
        f"no label is {positive!r} in {rows:,} rows; set data.positive (--positive) to the text "
        "that means 1"
    )


def shown_paths(paths: Sequence[Path]) -> str:
    """Returns the first path and the number of others."""
    more = len(paths) - 1
    return f"{paths[0]} and {more:,} more file{'s' if more > 1 else ''}" if more else str(paths[0])
