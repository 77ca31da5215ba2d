"""The rows of a store against those of the tables that were exported."""

from __future__ import annotations

import numpy as np

from hotrow import _native
from hotrow.ops.export.stored_rows import StoredRows


def check_rows(store, generation, tables):
    """Compares every row of a store with the tables, bit for bit."""
    for number, stored in enumerate(generation.tables):
        source = StoredRows(tables[stored.name], stored.row_type, None)
        wanted = np.zeros((generation.shards, 3), np.uint64)
        for keys, rows in source.pieces():
            there, _, states = store.read(generation, number, keys)
            assert (states == 1).all()
            np.testing.assert_array_equal(there, rows)
            wanted += _native.record_digests(keys, rows, generation.shards)
        assert wanted[:, 0].sum() == tables[stored.name].size > 0
        np.testing.assert_array_equal(store.digests(generation, number), wanted)
