"""Restores a chain of checkpoints whose files were checked: the full one, then each increment."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotrow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError
from hotrow.lineage import Lineage
from hotrow.trainer.checkpoint import stored
from hotrow.trainer.checkpoint.array_file import Arrays, read_arrays
from hotrow.trainer.checkpoint.position import Position
from hotrow.trainer.checkpoint.random_state import check_random_state
from hotrow.trainer.checkpoint.stored import StoredCheckpoint
from hotrow.trainer.checkpoint.table_files import read_removed, read_rows
from hotrow.trainer.checkpoint.variable_files import assign_variables, check_variables
from hotrow.trainer.metrics import BinaryMetrics

if TYPE_CHECKING:
    from hotrow.ops.table import Table
    from hotrow.trainer.models import Ranker


@dataclass(frozen=True)
class Restored:
    """What a checkpoint holds besides what was put into the model and its optimizer.

    Attributes:
        position: where the run stood.
        metrics: of the epoch so far, for `BinaryMetrics.set_state`.
        random: for `restore_random_state`.
        environment: versions and threads of the process that wrote it.
        lineage: of the run.
    """

    position: Position
    metrics: Arrays
    random: dict[str, Any]
    environment: dict[str, Any]
    lineage: Lineage


def restore(
    chain: list[StoredCheckpoint],
    model: Ranker,
    optimizer: Any | None,
    report: Callable[[str], None],
) -> Restored:
    """Replaces the tables and weights of a model by those of a checkpoint.

    Nothing is touched before everything that can be checked was checked. Should the rows then
    not be those that were written, every table is empty afterwards.

    Args:
        chain: from `open_chain`, which checked the files.
        model: made from the same configuration. A table may have another number of shards.
        optimizer: its variables are replaced; None: they are not needed.
        report: gets a line for what cannot be carried over to another number of shards.

    Raises:
        DataLossError: something is not what was written.
        FailedPreconditionError: the checkpoint is of another configuration.
    """
    newest = chain[-1]
    tables = model.tables()
    _check_tables(newest, tables)
    variables = {stored.MODEL: model.dense_variables()}
    if optimizer is not None:
        variables[stored.OPTIMIZER] = optimizer.variables
    values = {file: read_arrays(newest.path / file) for file in variables}
    for file, own in variables.items():
        check_variables(own, values[file], newest.path / file)
    restored = Restored(
        position=Position(**newest.facts["position"]),
        metrics=read_arrays(newest.path / stored.METRICS),
        random=_read_json(newest.path / stored.RANDOM),
        environment=newest.facts["environment"],
        lineage=Lineage.of_json(newest.facts.get("lineage", [])),
    )
    # Damage behind a valid checksum shows here, before anything has changed.
    BinaryMetrics().set_state(restored.metrics)
    check_random_state(restored.random)
    try:
        for table in tables.values():
            _restore_table(table, chain, report)
    except BaseException:
        for table in tables.values():
            table.clear()
        raise
    for file, own in variables.items():
        assign_variables(own, values[file])
    return restored


def _check_tables(checkpoint: StoredCheckpoint, tables: dict[str, Table]) -> None:
    entries = checkpoint.facts["tables"]
    if tables.keys() != entries.keys():
        raise FailedPreconditionError(
            f"{checkpoint.path} has the tables {', '.join(entries)}, the model "
            f"{', '.join(tables)}; use the configuration of the run"
        )
    for name, table in tables.items():
        written, own = entries[name], dict(table.layout)
        optimizer = type(table.config.optimizer).__name__
        if (written["layout"], written["optimizer"]) != (own, optimizer):
            raise FailedPreconditionError(
                f"table {name!r} was written with {_described(written['layout'])} of "
                f"{written['optimizer']}, the model has {_described(own)} of {optimizer}; use the "
                "configuration of the run"
            )


def _described(layout: dict[str, Any]) -> str:
    return f"dim {layout['width']} and lines of {layout['line_bytes']} bytes"


def _restore_table(
    table: Table, chain: list[StoredCheckpoint], report: Callable[[str], None]
) -> None:
    newest = chain[-1]
    entry = newest.table(table.name)
    same_shards = all(c.table(table.name)["shards"] == table.config.shards for c in chain)
    table.clear()
    try:
        for checkpoint in chain:
            _apply(table, checkpoint, same_shards)
    except InvalidArgumentError as err:
        raise DataLossError(f"{newest.path}: rows of table {table.name!r}: {err}") from err
    table.set_state((newest.path / stored.TABLES / entry["state"]).read_bytes())
    if not same_shards:
        report(
            f"table {table.name!r} was written with {entry['shards']} shards and has "
            f"{table.config.shards} now: sightings of keys without a row start anew"
        )
    if table.size != entry["size"] or (
        entry["digest"] is not None and table.digest() != entry["digest"]
    ):
        raise DataLossError(
            f"{newest.path}: the rows of table {table.name!r} are not those that were written"
        )


def _apply(table: Table, checkpoint: StoredCheckpoint, same_shards: bool) -> None:
    """Puts the rows of one checkpoint of a chain into a table, over those below it."""
    directory = checkpoint.path / stored.TABLES
    entry = checkpoint.table(table.name)
    # A row may have got the place of one that went: those leave first. A row that only moved
    # gives its old place up in any order.
    if entry["removed"] is not None:
        table.remove_rows(read_removed(directory / entry["removed"]))
    for file in entry["files"]:
        rows = read_rows(directory / file, table.line_bytes)
        table.import_rows(
            rows.keys,
            rows.lines,
            rows.clocks,
            rows.counts,
            rows.places if same_shards else None,
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as err:
        raise DataLossError(f"{path} cannot be read: {err}") from err
    return content
