"""`raw_batch`: rows in their Arrow form as a `RawBatch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hotrow.trainer.data.batch import Ragged, RawBatch
from hotrow.trainer.data.columns import MISSING_KEY, Column, ColumnKind
from hotrow.trainer.data.libsvm import WEIGHTS_SUFFIX


def raw_batch(rows: pa.RecordBatch, columns: Sequence[Column], label: str | None) -> RawBatch:
    """Returns B rows as a `RawBatch`.

    Args:
        rows: as `DataFile.record_batches` yields them.
        columns: the columns to take; the one of kind `WEIGHT` becomes the rows' weights.
        label: the column of labels; None: the rows have none.
    """
    arrays = {column.name: _raw_column(rows, column) for column in columns}
    weights = (column.name for column in columns if column.kind is ColumnKind.WEIGHT)
    weight = next(weights, None)
    return RawBatch(
        arrays=arrays,
        labels=None if label is None else rows.column(label).to_numpy(),
        size=rows.num_rows,
        weights=None if weight is None else arrays.pop(weight),
    )


def _raw_column(batch: pa.RecordBatch, column: Column) -> Any:
    values = batch.column(column.name)
    match column.kind:
        case ColumnKind.NUMBER | ColumnKind.WEIGHT:
            return values.to_numpy(zero_copy_only=False)
        case ColumnKind.INTEGER:
            return values.fill_null(MISSING_KEY).to_numpy()
        case ColumnKind.TEXT | ColumnKind.INTEGERS:
            return values
        case ColumnKind.IDS | ColumnKind.TEXTS:
            offsets = values.offsets.to_numpy().astype(np.int64)
            weights = None
            if column.name + WEIGHTS_SUFFIX in batch.schema.names:
                weights = batch.column(column.name + WEIGHTS_SUFFIX).flatten().to_numpy()
            flat = values.flatten()
            if column.kind is ColumnKind.IDS:
                flat = flat.to_numpy()
            return Ragged(flat, offsets - offsets[0], weights)
