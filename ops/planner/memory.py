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
DISK_ROW_BYTES = 27
"""Memory of a row whose line is on disk: docs/training.md."""
CACHE_ROW_OVERHEAD_BYTES = 28
"""Metadata of a row in a cache; `hotrow.Cache`."""

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
    return _line_bytes(table, width) + ROW_OVERHEAD_BYTES


def memory_bytes(
    scheme: str, table: TableConfig, facts: TableFacts, owner: int = 0
) -> npt.NDArray[np.float64]:
    """Returns the host memory of the table on each rank, float64 [N], extrapolated to all data.

    `row` and `row_broadcast`: on each rank, the bytes of the rank that owns most. `table`: all at
    the owner. `column`: all keys, some columns. `replicated`: all. A cache in host memory comes on
    top; with lines on disk, memory holds it and `DISK_ROW_BYTES` a row.
    """
    ranks, dim = facts.ranks, table.embedding_dim
    if scheme == "column":
        widths = columns_of(dim, ranks)
        return np.array([_held_bytes(table, facts.rows, int(width)) for width in widths])
    share = facts.largest_share if scheme in ("row", "row_broadcast") else 1.0
    held = _held_bytes(table, facts.rows * share, dim)
    return (
        np.where(np.arange(ranks) == owner, held, 0.0)
        if scheme == "table"
        else np.full(ranks, held)
    )


def _held_bytes(table: TableConfig, rows: float, width: int) -> float:
    """Returns the host memory of a rank that has `width` columns of `rows` rows."""
    cache = table.cache
    if cache is None or not width:
        return rows * row_bytes(table, width)
    held = rows * (DISK_ROW_BYTES if cache.disk is not None else row_bytes(table, width))
    if cache.gpu is not None:
        return held
    if cache.bytes is not None:
        return held + cache.bytes
    slots = (
        cache.rows if cache.rows is not None else (cache.ratio or 0) * (table.vocabulary_size or 0)
    )
    return held + slots * (_line_bytes(table, width) + CACHE_ROW_OVERHEAD_BYTES)


def _line_bytes(table: TableConfig, width: int) -> int:
    vectors, scalars = _STATE[type(table.optimizer)]
    if isinstance(table.optimizer, Adam) and table.optimizer.bias_correction != "row":
        scalars = 0
    return LineLayout(width, table.dtype, table.state_dtype, vectors, scalars).line_bytes
