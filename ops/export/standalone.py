"""The rows of a trained table as variables of a graph, for any TensorFlow Serving."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from hotrow.ops.lookup import StandaloneTable
from hotrow.ops.table import Table

_BATCH_ROWS = 65536
_END = np.iinfo(np.int64).max


def standalone_table(table: Table) -> StandaloneTable:
    """Returns a table as variables: sorted keys and an end mark; their rows and the default row."""
    batches = list(table.export_batches(_BATCH_ROWS))
    keys = np.concatenate([b.keys for b in batches]) if batches else np.zeros(0, np.int64)
    rows = np.full((len(keys) + 1, table.dim), table.default_value, np.float32)
    order = np.argsort(keys)
    if batches:
        rows[:-1] = np.concatenate([b.weights for b in batches])[order]
    return StandaloneTable(
        tf.Variable(np.append(keys[order], _END), trainable=False, name="keys"),
        tf.Variable(rows, trainable=False, name="rows"),
    )
