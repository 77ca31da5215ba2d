"""The rows of a trained table, as a store or a graph takes them: keys and weights, no state."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from hotrow import _native
from hotrow.errors import DataLossError
from hotrow.ops.lookup import StandaloneTable
from hotrow.ops.table import Table

BATCH_ROWS = 65536


def write_rows(table: Table, directory: str, generation: str) -> None:
    """Writes the weights of a table to the LMDB store in `directory`.

    Raises:
        ResourceExhaustedError, UnavailableError: the disk is full, the store cannot be opened.
        DataLossError: the store does not hold afterwards what the table holds.
    """
    writer = _native.StoreWriter(directory, generation, table.name, table.dim)
    for batch in table.export_batches(BATCH_ROWS):
        writer.put(batch.keys, np.ascontiguousarray(batch.weights))
    reader = _native.StoreReader(directory, generation, table.name, table.dim)
    stored, wanted = reader.digest(), table.digest(weights_only=True)
    reader.close()
    writer.close()
    if stored != wanted:
        raise DataLossError(
            f"store {directory}, table {table.name!r}: digest {stored} after writing, the table's "
            f"is {wanted}"
        )


def standalone_table(table: Table) -> StandaloneTable:
    """Returns a table as variables: keys sorted, and the default row behind the last row."""
    batches = list(table.export_batches(BATCH_ROWS))
    keys = np.concatenate([b.keys for b in batches]) if batches else np.zeros(0, np.int64)
    rows = np.full((len(keys) + 1, table.dim), table.default_value, np.float32)
    order = np.argsort(keys)
    if batches:
        rows[:-1] = np.concatenate([b.weights for b in batches])[order]
    return StandaloneTable(
        tf.Variable(keys[order], trainable=False, name="keys"),
        tf.Variable(rows, trainable=False, name="rows"),
    )
