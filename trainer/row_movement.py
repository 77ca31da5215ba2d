"""Detects optimizers whose steps are too small for the rows of tables.

A key's gradient is the contribution of its own samples to the batch's mean loss, about 1e-3.
Adagrad with Keras' initial accumulator of 0.1, or SGD with a learning rate for dense weights,
hardly moves a row with it. The model then learns only with its dense weights, and its AUC stays
low.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np

from hotrow.ops.row_batch import Keys, Rows
from hotrow.ops.table import Table
from hotrow.spec import Constant

STEPS = 30
"""Steps between the two looks at the rows."""

LEAST = 0.05
"""Share of its size by which a row has moved by then, where tables learn.

Measured on seven data sets, see `benchmarks/results/defaults.md`: 0.1 to 11 with settings that
learn, 0.0003 to 0.02 with those that stay 0.03 of AUC and more below them.
"""

_SAMPLE = 1000  # rows of a table
_ENOUGH = 10  # rows of a table that have moved at all


class RowMovement:
    """Measures how far the rows of tables move in the first steps of a run.

    It skips tables whose rows start at a constant, because these have no initial size to compare
    with; and tables with a schedule, because it may start at 0.

    Args:
        tables: by name.
        step: the step after which the object is made; some rows must exist by then.
    """

    def __init__(self, tables: Mapping[str, Table], step: int) -> None:
        self.end = step + STEPS
        self._before: list[tuple[Table, Keys, Rows]] = []
        for table in tables.values():
            sample = next(table.export_batches(_SAMPLE), None) if _is_watched(table) else None
            if sample is not None:
                self._before.append((table, sample.keys, np.array(sample.weights)))

    def warning(self) -> str | None:
        """Returns a line about rows that hardly moved; None: they moved, or too few rows did."""
        shares = [(_moved(*before), before[0]) for before in self._before]
        known = [(share, table) for share, table in shares if share is not None]
        if not known or statistics.median_low(share for share, _ in known) >= LEAST:
            return None
        share, table = min(known, key=lambda of: of[0])
        return (
            f"warning: {STEPS} steps moved the rows of table {table.name!r} by {share:.2%} of "
            f"their size, so AUC may stay low; {_advice(table)}"
        )


def _is_watched(table: Table) -> bool:
    config = table.config
    has_size = not isinstance(config.initializer, Constant)
    return has_size and isinstance(config.optimizer.learning_rate, (int, float))


def _moved(table: Table, keys: Keys, before: Rows) -> float | None:
    """Returns the 0.9 quantile of the moved rows' movement, relative to the rows' size."""
    change = np.sqrt(np.mean((table.lookup(keys) - before) ** 2, axis=1))
    moved = change[change > 0]
    if len(moved) < _ENOUGH:
        return None
    return float(np.quantile(moved, 0.9) / np.sqrt(np.mean(before**2)))


def _advice(table: Table) -> str:
    start = getattr(table.config.optimizer, "initial_accumulator_value", 0.0)
    if start > 1e-4:
        return f"lower its initial_accumulator ({start:g}; the default is 1e-6)"
    return f"raise its learning_rate ({table.config.optimizer.learning_rate:g})"
