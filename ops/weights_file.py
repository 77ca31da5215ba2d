"""Tables in the weights file of Keras: a mapping from names to arrays.

R rows, L bytes of a row line. For each table: `keys` int64 [R], `lines` uint8 [R, L], `clocks`,
`counts` and `places` uint32 [R], `state` uint8 (all state besides rows), and `facts`, JSON as
uint8.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import numpy as np

from hotrow.errors import DataLossError, HotrowError
from hotrow.ops.row_batch import RowBatch
from hotrow.ops.table import Table

_ROWS = ("keys", "lines", "clocks", "counts", "places")


def write_table(table: Table, store: Any, prefix: str) -> None:
    """Writes a table to `store`, under names that begin with `prefix`."""
    none = np.zeros(0, np.uint32)
    empty = RowBatch(
        table.line_layout,
        np.zeros(0, np.int64),
        np.zeros((0, table.line_bytes), np.uint8),
        clocks=none,
        counts=none,
        places=none,
    )
    batches = [empty, *table.export_batches()]
    for name in _ROWS:
        store[prefix + name] = np.concatenate([getattr(batch, name) for batch in batches])
    store[prefix + "state"] = np.frombuffer(table.state(), np.uint8)
    store[prefix + "facts"] = np.frombuffer(json.dumps(_facts(table)).encode(), np.uint8)


def read_tables(tables: Collection[Table], store: Any) -> None:
    """Replaces the rows and the state of tables by those that `write_table` wrote.

    It checks all tables before it changes the first.

    Args:
        tables: the n-th was written with the prefix `table<n>_`.
        store: the mapping that `write_table` filled.

    Raises:
        DataLossError: a table is missing, or has another name, layout or optimizer; or its rows or
            state cannot be restored.
    """
    stored = set(store.keys())
    for i, table in enumerate(tables):
        if f"table{i}_facts" not in stored:
            raise DataLossError(f"the weights file has no rows of {table.name!r}")
        found, wanted = _stored_facts(store, i), _facts(table)
        for fact in ("table", "optimizer", "layout"):
            if found.get(fact) != wanted[fact]:
                raise DataLossError(
                    f"the weights file holds a table with {fact} {found.get(fact)!r}; the layer "
                    f"needs {table.name!r} with {fact} {wanted[fact]!r}"
                )
    for i, table in enumerate(tables):
        keys, lines, clocks, counts, places = (
            np.asarray(store[f"table{i}_{name}"]) for name in _ROWS
        )
        facts = _stored_facts(store, i)
        table.clear()
        try:
            if facts["shards"] == table.config.shards:
                table.import_rows(keys, lines, clocks, counts, places)
                table.set_state(np.asarray(store[f"table{i}_state"]).tobytes())
            else:  # occurrences and tombstones are kept by shard; they start empty
                table.import_rows(keys, lines, clocks, counts)
                table.step = facts["step"]
        except (HotrowError, ValueError) as err:
            table.clear()
            raise DataLossError(f"table {table.name!r} of the weights file: {err}") from err


def _facts(table: Table) -> dict[str, Any]:
    return {
        "table": table.name,
        "optimizer": type(table.config.optimizer).__name__,
        "layout": table.layout,
        "shards": table.config.shards,
        "step": table.step,
    }


def _stored_facts(store: Any, number: int) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(np.asarray(store[f"table{number}_facts"]).tobytes())
    except ValueError as err:
        raise DataLossError(f"the facts of table {number} in the weights file: {err}") from err
    return facts
