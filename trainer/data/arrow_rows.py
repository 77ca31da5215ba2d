"""Cuts and joins rows in the Arrow form of a file."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def number_of_rows(rows: pa.RecordBatch) -> int:
    """Returns how many rows there are."""
    return int(rows.num_rows)


def cut_rows(rows: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
    """Returns rows `start` to `stop`, as views."""
    return rows.slice(start, stop - start)


def join_rows(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Returns the rows of one or more pieces of one file, in order."""
    if len(pieces) == 1:
        return pieces[0]
    return pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]
