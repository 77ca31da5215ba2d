"""`WaitingRow`: a row that left those that wait for their labels."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa


class WaitingRow(NamedTuple):
    """A row among others that were read with it.

    Attributes:
        rows: the rows.
        place: its index among them.
        read: number of the read that it is of.
    """

    rows: pa.RecordBatch
    place: int
    read: int
