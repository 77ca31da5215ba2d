"""The state of a training at one step, read for a cut while training goes on.

N rows, D weights, B bytes of a stored row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from hotrow.norms import Measured
from hotrow.ops.export.gates import measured_table
from hotrow.ops.export.row_encoding import encoded_rows
from hotrow.ops.table_contents import open_snapshots
from hotrow.store.cuts import TableChanges
from hotrow.store.spec import RowType, row_bytes

if TYPE_CHECKING:
    from hotrow.ops.table import Table

CHANGED_ROWS = "changed rows of "
"""Before the name of a table in the norms of cuts."""
_READ_ROWS = 65536


def reader_of(variables: Sequence[tf.Variable]) -> Callable[[], list[tf.Tensor]]:
    """Returns a function that returns the values of variables, without copies.

    An update of a variable whose buffer is held writes to another one.
    """

    # One call instead of one for each variable: after each, Python's lock may be another thread's.
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def read() -> list[tf.Tensor]:
        return [tf.raw_ops.ReadVariableOp(resource=v.handle, dtype=v.dtype) for v in variables]

    return read.get_concrete_function()  # type: ignore[no-any-return]


class CutView:
    """This rank's part of what changed since the last cut. Make it between two steps.

    Attributes:
        step: training step.
        clocks: clocks of the tables, by name.
        sizes: rows of the tables, by name.
        has_dense: whether the cut gets them; otherwise it has those of the cut before.
    """

    def __init__(
        self, tables: Mapping[str, Table], dense: Sequence[tf.Tensor] | None, step: int
    ) -> None:
        """Takes the view.

        Args:
            tables: by name; not trained during the call.
            dense: values of the dense variables for the cut, from `reader_of`; None: none.
            step: training step.
        """
        self.step = step
        self.clocks = {name: table.step for name, table in tables.items()}
        self.sizes = {name: len(table) for name, table in tables.items()}
        self.has_dense = dense is not None
        self._dense = list(dense or ())
        self._tables = dict(tables)
        self._snapshots = dict(zip(tables, open_snapshots(tables.values(), "publish"), strict=True))

    @property
    def dense(self) -> list[npt.NDArray[Any]]:
        """Values of the dense variables, in their order; empty on ranks but the first."""
        return [value.numpy() for value in self._dense]

    def changes(self, name: str, row_type: RowType, measured: Measured) -> Iterator[TableChanges]:
        """Yields the changes of a table: rows in the encoding of a store, then removed keys.

        Args:
            name: of the table.
            row_type: how weights are stored.
            measured: gets all rows.

        Raises:
            FailedPreconditionError: the view was given up, because its copies took too much memory.
            InvalidArgumentError: a weight of an int8 row is not finite.
        """
        table, snapshot = self._tables[name], self._snapshots[name]
        layout = table.line_layout
        while True:
            keys, lines, *_ = snapshot.read(_READ_ROWS)
            if not len(keys):
                break
            weights = layout.weights(lines)
            measured.add(keys, weights)
            rows = encoded_rows(name, row_type, keys, weights)
            yield TableChanges(keys, rows, np.empty(0, np.int64))
        removed = snapshot.removed
        if len(removed):
            none = np.empty((0, row_bytes(row_type, table.dim)), np.uint8)
            yield TableChanges(np.empty(0, np.int64), none, removed)

    def measured(self, name: str, row_type: RowType) -> Measured:
        """Returns an empty measure of a table's changed rows."""
        measured = measured_table(name, row_type)
        measured.name = CHANGED_ROWS + measured.name
        return measured

    def close(self, published: bool) -> None:
        """Ends the view.

        Args:
            published: whether servers can read it; otherwise the next view has its changes, too.
        """
        with contextlib.ExitStack() as stack:
            for snapshot in self._snapshots.values():
                stack.callback(snapshot.close)
            if published:
                for snapshot in self._snapshots.values():
                    snapshot.keep()
