"""Restores the rows of one table on one rank, from a chain that any number of ranks wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hotrow.errors import DataLossError, InvalidArgumentError
from hotrow.ops.ranks import Ranks
from hotrow.trainer.checkpoint.part_rows import removed_of, rows_of
from hotrow.trainer.checkpoint.parts import COLUMN, REPLICATED, columns_of, parts_of
from hotrow.trainer.checkpoint.stored import TABLES, StoredCheckpoint
from hotrow.trainer.checkpoint.table_files import read_removed, read_rows

if TYPE_CHECKING:
    from hotrow.ops.table import Table


def restore_table(
    table: Table,
    chain: list[StoredCheckpoint],
    report: Callable[[str], None],
    ranks: Ranks,
    new_filter: bool = False,
) -> None:
    """Replaces a table's rows and state by this rank's part of a chain.

    Args:
        table: emptied first.
        chain: the full checkpoint first; any number of ranks may have written it.
        report: called with a line if occurrence counts of keys without a row cannot be restored.
        ranks: this rank and the number of ranks; not a collective.
        new_filter: whether admission counts keys in another way than before; its counts start from
            0.

    Raises:
        DataLossError: the table cannot have these rows.
    """
    newest = chain[-1]
    entry = newest.table(table.name)
    table.clear()
    own = None if new_filter else _own_part(table, entry, ranks)
    same = own is not None and all(
        checkpoint.table(table.name)["shards"] == table.config.shards for checkpoint in chain
    )
    try:
        for checkpoint in chain:
            if own is None:
                _pick(table, checkpoint)
            else:
                number = parts_of(entry).index(own)
                _apply(table, checkpoint, number, same)
    except InvalidArgumentError as err:
        raise DataLossError(f"{newest.path}: rows of table {table.name!r}: {err}") from err
    folder = newest.path / TABLES
    if own is not None:
        table.set_state((folder / own["state"]).read_bytes())
    else:
        states = [(folder / part["state"]).read_bytes() for part in parts_of(entry)]
        everywhere = entry.get("sharding") in (COLUMN, REPLICATED)
        table.merge_states(states, _counted(table, len(states), everywhere, ranks))
    if new_filter:
        report(
            f"table {table.name!r} has another admission now: occurrences of keys without a row "
            "are counted anew"
        )
    elif own is None:
        if table.config.admission is not None:
            written = newest.facts["environment"].get("ranks", 1)
            report(
                f"table {table.name!r} was written by {written} ranks, now there are "
                f"{ranks.size}: occurrences of keys without a row start anew"
            )
    elif not same:
        report(
            f"table {table.name!r} was written with {entry['shards']} shards and has "
            f"{table.config.shards} now: occurrences of keys without a row start anew"
        )


def _own_part(table: Table, entry: dict[str, Any], ranks: Ranks) -> dict[str, Any] | None:
    """Returns the part with exactly the rows of this rank's table; None: there is none."""
    parts = parts_of(entry)
    if "parts" not in entry:
        return parts[0] if ranks.size == 1 else None
    if ranks.size == 1 or entry["ranks"] != ranks.size:
        return None
    if entry["sharding"] != table.config.sharding or entry["owner"] != table.config.owner:
        return None
    own = parts[0] if entry["sharding"] == REPLICATED else parts[ranks.rank]
    return own if columns_of(own) == table.columns else None


def _counted(table: Table, states: int, everywhere: bool, ranks: Ranks) -> list[bool]:
    """Returns which totals this rank continues, so that all ranks together have each one once."""
    whole = [number == 0 or not everywhere for number in range(states)]
    if ranks.size == 1 or table.config.sharding in (COLUMN, REPLICATED):
        return whole
    return [counts and number % ranks.size == ranks.rank for number, counts in enumerate(whole)]


def _apply(table: Table, checkpoint: StoredCheckpoint, number: int, same_shards: bool) -> None:
    """Applies the rows of one part of a checkpoint to a table, over earlier ones of the chain."""
    folder = checkpoint.path / TABLES
    part = parts_of(checkpoint.table(table.name))[number]
    # A new row may have the place of a removed one: removed rows leave first. A row that only moved
    # frees its old place, so the order of moves does not matter.
    if part["removed"] is not None:
        table.remove_rows(read_removed(folder / part["removed"]))
    for file in part["files"]:
        rows = read_rows(folder / file, table.line_bytes)
        table.import_rows(
            rows.keys, rows.lines, rows.clocks, rows.counts, rows.places if same_shards else None
        )


def _pick(table: Table, checkpoint: StoredCheckpoint) -> None:
    """Applies this rank's rows of a checkpoint to its table, over earlier ones of the chain."""
    table.remove_rows(removed_of(checkpoint, table.name))
    for rows in rows_of(checkpoint, table.name, table.columns):
        own = table.owns(rows.keys)
        table.import_rows(rows.keys[own], rows.lines[own], rows.clocks[own], rows.counts[own])
