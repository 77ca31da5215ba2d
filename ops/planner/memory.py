"""The memory that a table needs on each rank."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hotrow.line_layout import LineLayout
from hotrow.ops.planner.facts import TableFacts
from hotrow.ops.planner.volumes import columns_of
from hotrow.spec import (
    SGD,
    Adagrad,
    Adam,
    Ftrl,
    Momentum,
    RowwiseAdagrad,
    TableConfig,
    TableOptimizer,
)

ROW_OVERHEAD_BYTES = 24
"""Header and index of a row, as benchmarks/results/embedding_step.md has measured."""

# State values a weight, and a row: as in `core/kernels/optimizer.cc`.
_STATE: dict[type[TableOptimizer], tuple[int, int]] = {
    SGD: (0, 0),
    Momentum: (1, 0),
    Adagrad: (1, 0),
    RowwiseAdagrad: (0, 1),
    Adam: (2, 1),
    Ftrl: (2, 0),
}


def row_bytes(table: TableConfig, width: int) -> int:
    """Returns the bytes of a row with `width` of its columns: line, header and index."""
    vectors, scalars = _STATE[type(table.optimizer)]
    if isinstance(table.optimizer, Adam) and table.optimizer.bias_correction != "row":
        scalars = 0
    layout = LineLayout(width, table.dtype, table.state_dtype, vectors, scalars)
    return layout.line_bytes + ROW_OVERHEAD_BYTES


def memory_bytes(
    scheme: str, table: TableConfig, facts: TableFacts, owner: int = 0
) -> npt.NDArray[np.float64]:
    """Returns the bytes of the table's rows on each rank, float64 [N], extrapolated to all data.

    `row` and `row_broadcast`: on each rank, the bytes of the rank that owns most. `table`: all at
    the owner. `column`: all keys, some columns. `replicated`: all.
    """
    ranks, whole = facts.ranks, row_bytes(table, table.embedding_dim)
    if scheme in ("row", "row_broadcast"):
        return np.full(ranks, facts.rows * facts.largest_share * whole)
    if scheme == "table":
        return np.where(np.arange(ranks) == owner, facts.rows * whole, 0.0)
    if scheme == "column":
        columns = columns_of(table.embedding_dim, ranks)
        return np.array([facts.rows * row_bytes(table, int(width)) for width in columns])
    return np.full(ranks, facts.rows * whole)
