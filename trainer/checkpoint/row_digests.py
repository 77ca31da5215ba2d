"""The digests that a checkpoint has of a table's rows, and sums of digests to compare with them.

Ranks that split a table by columns write a digest for their columns. Any other table has one digest
of whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hotrow import _native
from hotrow.line_layout import LineLayout
from hotrow.trainer.checkpoint.line_columns import cut_columns
from hotrow.trainer.checkpoint.parts import COLUMN, columns_of, parts_of, sum_of_digests

NOTHING = "0" * 32
"""The digest of no rows."""


class LineArrays(Protocol):
    """Rows with keys int64 [N], lines uint8 [N, L], clocks and counts uint32 [N]."""

    @property
    def keys(self) -> npt.NDArray[np.int64]: ...  # noqa: D102
    @property
    def lines(self) -> npt.NDArray[np.uint8]: ...  # noqa: D102
    @property
    def clocks(self) -> npt.NDArray[np.uint32]: ...  # noqa: D102
    @property
    def counts(self) -> npt.NDArray[np.uint32]: ...  # noqa: D102


@dataclass(frozen=True)
class WrittenDigest:
    """A digest in a manifest.

    Attributes:
        columns: the columns of each row that it covers.
        digest: 32 hex digits; None: the writer did not know it.
        what: the name of its rows, for messages.
    """

    columns: range
    digest: str | None
    what: str


def written_digests(table: str, entry: dict[str, Any]) -> list[WrittenDigest]:
    """Returns the digests of a table's entry; together they cover all columns once."""
    if entry.get("sharding") != COLUMN:
        whole = range(entry["layout"]["width"])
        return [WrittenDigest(whole, entry["digest"], f"the rows of table {table!r}")]
    return [
        WrittenDigest(
            columns := columns_of(part),
            part["digest"],
            f"columns {columns.start} to {columns.stop - 1} of table {table!r} "
            f"(rank {part['rank']})",
        )
        for part in parts_of(entry)
    ]


class RowDigests:
    """Sums the digests of rows, for each group of columns.

    Attributes:
        sums: a digest for each group, in their order.
    """

    def __init__(self, groups: Sequence[range], layout: LineLayout, first_column: int = 0) -> None:
        """Begins with no rows.

        Args:
            groups: columns of the table.
            layout: the layout of the lines to come, which have all these columns.
            first_column: the column of the table that is the first one of the lines.
        """
        self.sums = [NOTHING] * len(groups)
        self._layout = layout
        self._groups = [range(g.start - first_column, g.stop - first_column) for g in groups]

    def add(self, rows: LineArrays) -> None:
        """Adds rows; each row of the table must come once."""
        for number, group in enumerate(self._groups):
            lines = cut_columns(rows.lines, self._layout, group)
            digest = digest_of(rows, lines)
            self.sums[number] = sum_of_digests([self.sums[number], digest]) or NOTHING


def digest_of(rows: LineArrays, lines: npt.NDArray[np.uint8] | None = None) -> str:
    """Returns the digest of rows, as that of a table with these rows alone; see `Table.digest`.

    Args:
        rows: the rows.
        lines: other lines uint8 [N, L] for them; None: their own.
    """
    return _native.lines_digest(
        np.ascontiguousarray(rows.keys),
        np.ascontiguousarray(rows.lines if lines is None else lines),
        np.ascontiguousarray(rows.clocks),
        np.ascontiguousarray(rows.counts),
    )
