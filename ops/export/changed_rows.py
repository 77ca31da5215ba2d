"""The rows of a table that training changed since an export. N rows, B bytes of a stored row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hotrow.errors import FailedPreconditionError
from hotrow.norms import Measured
from hotrow.ops.export.row_encoding import encoded_rows
from hotrow.ops.row_batch import Keys
from hotrow.ops.table import Table
from hotrow.store.cuts import TableChanges
from hotrow.store.row_store import Rows
from hotrow.store.spec import RowType, row_bytes

KeysBefore = Callable[[str, int], Keys | None]
"""Called with a table's name and an earlier step of it; returns the keys int64 [N] of the rows that
it had then, or None if they are not known."""

_READ_ROWS = 65536
# Large, because the rows spread over all virtual shards, and each shard gets its own block.
_PIECE_BYTES = 64 << 20


def changed_rows(
    table: Table,
    row_type: RowType,
    since: int,
    report: Callable[[str], None] = lambda line: None,
    piece_bytes: int = _PIECE_BYTES,
    keys_before: KeysBefore = lambda table, step: None,
    measured: Measured | None = None,
) -> Iterator[TableChanges]:
    """Yields the rows created or updated after a step of the table, then the expired keys.

    A row's clock is the step of the commit that last updated it. A row that no commit has updated
    yet has the table's next step as its clock. So rows that an export at step s lacks have larger
    clocks.

    Args:
        table: not trained during the call.
        row_type: how weights are stored.
        since: `Table.step` at the last export.
        report: called with lines of progress.
        piece_bytes: approximate size of a piece, in bytes of rows.
        keys_before: called if the table has forgotten which keys expired since then.
        measured: gets all rows, of which those yielded are exported.

    Raises:
        FailedPreconditionError: the table has dropped tombstones of keys that expired since then,
            or did not keep them yet, and `keys_before` does not know its keys.
        InvalidArgumentError: a weight of an int8 row is not finite.
    """
    gone = _keys_gone(table, since, keys_before)
    most = max(1, piece_bytes // row_bytes(row_type, table.dim))
    keys: list[Keys] = []
    rows: list[Rows] = []
    waiting = done = 0
    for batch in table.export_batches(_READ_ROWS):
        new = batch.clocks > since
        if measured is not None:
            measured.add(batch.keys, batch.weights, new)
        keys.append(batch.keys[new])
        # Encoded here, so that the batch can be freed.
        rows.append(encoded_rows(table.name, row_type, keys[-1], batch.weights[new]))
        waiting += len(keys[-1])
        done += len(batch.keys)
        if waiting >= most:
            yield _rows_alone(keys, rows)
            keys, rows, waiting = [], [], 0
        report(f"table {table.name}: {done} of {table.size} rows")
    if waiting:
        yield _rows_alone(keys, rows)
    none = np.empty((0, row_bytes(row_type, table.dim)), np.uint8)
    for first in range(0, len(gone), most):
        removed = np.ascontiguousarray(gone[first : first + most])
        yield TableChanges(np.empty(0, np.int64), none, removed)


def _keys_gone(table: Table, since: int, keys_before: KeysBefore) -> Keys:
    """Returns the keys of rows that a table had at a step and does not have any more."""
    if table.forgotten_step <= since:
        expired, steps = table.tombstones()
        return expired[steps > since]
    before = keys_before(table.name, since)
    if before is None:
        raise FailedPreconditionError(
            f"table {table.name!r} has forgotten which keys expired up to step "
            f"{table.forgotten_step}, and the last export is of step {since}; make a full export"
        )
    return before[~table.contains(before)]


def _rows_alone(keys: list[Keys], rows: list[Rows]) -> TableChanges:
    return TableChanges(np.concatenate(keys), np.concatenate(rows), np.empty(0, np.int64))
