"""Tables as arrays by name, written and read in pieces: what a weights file of Keras can hold.

R rows of a piece, L bytes of a row line. Table n has a prefix `table<n>_`. Its `facts` are JSON as
uint8, with the number of `pieces`; its `state` uint8 is all state besides rows. Piece p has
`<p>_keys` int64 [R], `<p>_lines` uint8 [R, L], `<p>_clocks`, `<p>_counts` and `<p>_places`
uint32 [R]. Files of earlier versions have one piece, without `<p>_`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from hotrow.errors import DataLossError, HotrowError
from hotrow.ops.table import Table

PIECE_BYTES = 4 << 20
"""Bytes of the lines of a piece. Memory holds a few pieces while a table is written or read."""

_ROWS = ("keys", "lines", "clocks", "counts", "places")


def write_tables(tables: Collection[Table], store: Any) -> None:
    """Writes tables to `store`, a mapping from names to arrays that need not keep the arrays."""
    for number, table in enumerate(tables):
        prefix, pieces = f"table{number}_", 0
        for batch in table.export_batches(max(1, PIECE_BYTES // table.line_bytes)):
            for name in _ROWS:
                store[f"{prefix}{pieces}_{name}"] = getattr(batch, name)
            pieces += 1
        store[prefix + "state"] = np.frombuffer(table.state(), np.uint8)
        facts = {**_facts(table), "pieces": pieces}
        store[prefix + "facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)


def read_tables(tables: Collection[Table], store: Any) -> None:
    """Replaces the rows and the state of tables by those that `write_tables` wrote.

    It checks all tables before it changes the first.

    Args:
        tables: the layer's tables, in the order in which they were written.
        store: the mapping that `write_tables` filled.

    Raises:
        DataLossError: a table is missing, or has another name, layout or optimizer; or its rows or
            state cannot be restored.
    """
    stored = set(store.keys())
    for number, table in enumerate(tables):
        if f"table{number}_facts" not in stored:
            raise DataLossError(f"the weights file has no rows of {table.name!r}")
        found, wanted = _stored_facts(store, number), _facts(table)
        for fact in ("table", "optimizer", "layout"):
            if found.get(fact) != wanted[fact]:
                raise DataLossError(
                    f"the weights file holds a table with {fact} {found.get(fact)!r}; the layer "
                    f"needs {table.name!r} with {fact} {wanted[fact]!r}"
                )
    for number, table in enumerate(tables):
        facts = _stored_facts(store, number)
        table.clear()
        try:
            as_before = facts["shards"] == table.config.shards
            for keys, lines, clocks, counts, places in _pieces(store, number, facts):
                table.import_rows(keys, lines, clocks, counts, places if as_before else None)
            if as_before:
                table.set_state(np.asarray(store[f"table{number}_state"]).tobytes())
            else:  # occurrences and tombstones are kept by shard; they start empty
                table.step = facts["step"]
        except (HotrowError, KeyError, ValueError) as err:
            table.clear()
            raise DataLossError(f"table {table.name!r} of the weights file: {err}") from err


def _pieces(store: Any, number: int, facts: dict[str, Any]) -> Iterator[list[Any]]:
    prefix = f"table{number}_"
    prefixes = [f"{prefix}{p}_" for p in range(facts["pieces"])] if "pieces" in facts else [prefix]
    for piece in prefixes:
        yield [np.asarray(store[piece + name]) for name in _ROWS]


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
