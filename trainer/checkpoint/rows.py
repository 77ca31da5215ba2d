"""The rows of a checkpoint, piece by piece, without tables: for readers such as `inspect`.

A chain of increments is read from its newest checkpoint to the full one; the first occurrence of a
row counts. Memory: one file, and 8 bytes for each row of the increments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hotrow.errors import DataLossError
from hotrow.line_layout import LineLayout
from hotrow.trainer.checkpoint.line_columns import layout_of_columns
from hotrow.trainer.checkpoint.part_rows import removed_of, rows_of
from hotrow.trainer.checkpoint.parts import files_of
from hotrow.trainer.checkpoint.row_digests import RowDigests, written_digests
from hotrow.trainer.checkpoint.stored import TABLES, StoredCheckpoint, open_chain
from hotrow.trainer.checkpoint.table_files import Rows

PIECE_ROWS = 65_536  # results of a piece fit in a core's cache

Keys = npt.NDArray[np.int64]


class CheckpointRows:
    """A checkpoint whose checksums were checked, with all checkpoints that it builds on.

    Attributes:
        newest: the checkpoint itself.
    """

    def __init__(self, path: Path) -> None:
        """Checks every file of the checkpoint, and the tables' files of those that it builds on.

        Raises:
            DataLossError: a file is missing or damaged.
            FailedPreconditionError: the checkpoint has another format.
        """
        self._chain = open_chain(path)
        self.newest = self._chain[-1]

    @property
    def gone(self) -> list[Path]:
        """Checkpoints of the chain that were removed after the check."""
        return [part.path for part in self._chain if not part.path.exists()]

    def tables(self) -> list[str]:
        """Returns the names of the tables."""
        return list(self.newest.facts["tables"])

    def layout(self, table: str) -> LineLayout:
        """Returns the layout of a table's lines.

        Raises:
            DataLossError: the manifest has no layout of it.
        """
        return LineLayout.from_facts(self.newest.table(table)["layout"])

    def disk_bytes(self, table: str) -> int:
        """Returns the bytes of a table's files in the whole chain."""
        return sum(
            part.facts["files"][f"{TABLES}/{name}"]["bytes"]
            for part in self._chain
            for name in files_of(part.table(table))
        )

    def rows_to_read(self, table: str) -> int:
        """Returns the number of rows in the whole chain, rows that were replaced later included."""
        return sum(part.table(table)["rows"] for part in self._chain)

    def read(self, table: str, passed: Callable[[int], None]) -> Iterator[Rows]:
        """Yields each row of a table once, in pieces of at most `PIECE_ROWS`.

        Args:
            table: the table's name.
            passed: called with the number of rows read for each piece.

        Raises:
            DataLossError: a file cannot be read, or the rows differ in number or digest from the
                written ones.
        """
        digests = written_digests(table, self.newest.table(table))
        written = [one for one in digests if one.digest is not None]
        sums = RowDigests([one.columns for one in written], self.layout(table))
        found = 0
        for rows in _current_rows(self._chain, table, None, passed):
            found += len(rows.keys)
            sums.add(rows)
            yield rows
        expected = self.newest.table(table)["size"]
        if found != expected:
            raise DataLossError(
                f"{self.newest.path}: table {table!r} has {found} rows, {expected} were written"
            )
        for one, digest in zip(written, sums.sums, strict=True):
            if digest != one.digest:
                raise DataLossError(
                    f"{self.newest.path}: {one.what} are not those that were written: digest "
                    f"{digest} instead of {one.digest}"
                )


def digest_in_files(chain: Sequence[StoredCheckpoint], table: str, columns: range) -> str:
    """Returns the digest of some columns of a table's rows, read from the files of a chain.

    Raises:
        DataLossError: a file cannot be read.
    """
    layout = LineLayout.from_facts(chain[-1].table(table)["layout"])
    own = RowDigests([columns], layout_of_columns(layout, columns), columns.start)
    for rows in _current_rows(chain, table, columns, lambda rows: None):
        own.add(rows)
    return own.sums[0]


def _current_rows(
    chain: Sequence[StoredCheckpoint],
    table: str,
    columns: range | None,
    passed: Callable[[int], None],
) -> Iterator[Rows]:
    """Yields each row that a table has after a chain, once; see `CheckpointRows.read`."""
    seen: Keys = np.empty(0, np.int64)  # sorted keys of the newer checkpoints
    for part in reversed(chain):
        is_full = part is chain[0]
        newer = [seen]
        for rows in rows_of(part, table, columns):
            if not is_full:
                newer.append(rows.keys)
            for piece in _pieces(rows):
                yield _without(piece, seen)
                passed(len(piece.keys))
        if not is_full:
            seen = np.sort(np.concatenate([*newer, removed_of(part, table)]))


def _pieces(rows: Rows) -> Iterator[Rows]:
    for first in range(0, len(rows.keys), PIECE_ROWS):
        yield _picked(rows, slice(first, first + PIECE_ROWS))


def _without(rows: Rows, seen: Keys) -> Rows:
    """Returns the rows whose keys are not among `seen`, which is sorted."""
    if not len(seen):
        return rows
    places = np.minimum(np.searchsorted(seen, rows.keys), len(seen) - 1)
    return _picked(rows, seen[places] != rows.keys)


def _picked(rows: Rows, which: slice | npt.NDArray[np.bool_]) -> Rows:
    return Rows(**{name: array[which] for name, array in vars(rows).items()})
