"""A trained table's rows in the form of a store. N rows, D weights, B bytes of a stored row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotrow.ops.export.row_encoding import encoded_rows
from hotrow.ops.row_batch import Keys, RowBatch, Uint32s, mixed
from hotrow.ops.table import Table
from hotrow.store.row_store import Rows
from hotrow.store.spec import RowType, StoredTable, row_bytes

_PIECE_BYTES = 64 << 20
_COUNT_ROWS = 65536


@dataclass(frozen=True)
class _Top:
    """The most frequent rows of a table, by count; the mixed key orders rows of equal counts."""

    least: int
    most_mixed_of_least: int

    def of(self, batch: RowBatch) -> npt.NDArray[np.bool_]:
        """Returns bool [N]: whether each row is among them."""
        wanted: npt.NDArray[np.bool_] = batch.counts > self.least
        wanted |= (batch.counts == self.least) & (mixed(batch.keys) <= self.most_mixed_of_least)
        return wanted


class StoredRows:
    """The rows of a table in a row type; a `TableSource` of full exports.

    Args:
        table: not trained while its rows are read.
        row_type: None: the table's own.
        top: at most this many rows, the most frequent ones; None: all.
    """

    def __init__(self, table: Table, row_type: RowType | None, top: int | None) -> None:
        self._table = table
        own: RowType = table.config.dtype
        self.row_type = own if row_type is None else row_type
        self._top = _top_of(table, top) if top is not None and top < table.size else None
        rows = table.size if self._top is None else int(top or 0)
        self.table = StoredTable(
            name=table.name,
            dim=table.dim,
            row_type=self.row_type,
            default_value=table.default_value,
            rows=rows,
        )

    def pieces(self) -> Iterator[tuple[Keys, Rows]]:
        """Yields keys int64 [N] and rows uint8 [N, B], by ascending ranges of mixed keys.

        Raises:
            InvalidArgumentError: a weight of an int8 row is not finite.
        """
        most_rows = max(1, _PIECE_BYTES // row_bytes(self.row_type, self._table.dim))
        for batch in self._table.export_hash_ranges(most_rows):
            keys, weights = batch.keys, batch.weights
            if self._top is not None:
                wanted = self._top.of(batch)
                keys, weights = keys[wanted], weights[wanted]
            if len(keys):
                rows = encoded_rows(self.table.name, self.row_type, keys, weights)
                yield np.ascontiguousarray(keys), rows


def source_of(step: int, sources: Sequence[StoredRows], tables: Sequence[Table]) -> str:
    """Returns a text that is equal for exports of the same rows in the same encoding."""
    parts = [f"step {step}"]
    for source, table in zip(sources, tables, strict=True):
        facts = source.table
        parts.append(
            f"{facts.name} {facts.row_type} {facts.rows} {table.digest(weights_only=True)}"
        )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _top_of(table: Table, top: int) -> _Top | None:
    """Finds which `top` rows of a table are the most frequent; top < rows."""
    if top == 0:
        return _Top(1 << 32, 0)
    counts: Uint32s = np.concatenate([b.counts for b in table.export_batches(_COUNT_ROWS)])
    place = len(counts) - top
    least = int(np.partition(counts, place)[place])
    tied = top - int((counts > least).sum())
    ties = np.sort(
        np.concatenate(
            [mixed(b.keys[b.counts == least]) for b in table.export_batches(_COUNT_ROWS)]
        )
    )
    return _Top(least, int(ties[tied - 1]))
