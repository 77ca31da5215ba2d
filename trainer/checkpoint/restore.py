"""Restores a chain of checked checkpoints: the full one first, then each increment."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.lineage import Lineage
from hotrow.ops.ranks import LONE, Ranks
from hotrow.trainer.agreement import agreed
from hotrow.trainer.checkpoint import stored
from hotrow.trainer.checkpoint.array_file import Arrays, read_arrays
from hotrow.trainer.checkpoint.parts import whole_layout
from hotrow.trainer.checkpoint.position import Position
from hotrow.trainer.checkpoint.random_state import check_random_state
from hotrow.trainer.checkpoint.stored import StoredCheckpoint
from hotrow.trainer.checkpoint.table_check import check_rows
from hotrow.trainer.checkpoint.table_restore import restore_table
from hotrow.trainer.checkpoint.variable_files import assign_variables, check_variables
from hotrow.trainer.disk_rows import check_fits
from hotrow.trainer.metrics import BinaryMetrics

if TYPE_CHECKING:
    from hotrow.ops.table import Table
    from hotrow.trainer.models import Ranker


@dataclass(frozen=True)
class Restored:
    """The contents of a checkpoint besides those of the model and its optimizer.

    Attributes:
        position: position of the run.
        metrics: metrics of the epoch so far, for `BinaryMetrics.set_state`.
        random: for `restore_random_state`.
        environment: versions and threads of the process that wrote it.
        lineage: lineage of the run.
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
    ranks: Ranks = LONE,
) -> Restored:
    """Replaces the tables and weights of a model by those of a checkpoint.

    It makes all possible checks before it changes anything. If the restored rows still differ from
    the written ones, it empties every table.

    Args:
        chain: from `open_chain`, which checked the files.
        model: made from the same configuration. A table may have another number of shards.
        optimizer: its variables are replaced; None: they are not needed.
        report: called with a line about state that another number of shards or ranks loses.
        ranks: the ranks that train the model; each restores its own rows. A collective.

    Raises:
        DataLossError: the contents differ from the written ones.
        FailedPreconditionError: the checkpoint has another configuration.
        ResourceExhaustedError: it has more rows than a table on disk may hold.
    """
    tables = model.tables()
    try:
        restored, assign = agreed(
            ranks, "rows of a checkpoint", lambda: _restore(chain, model, optimizer, report, ranks)
        )
        check_rows(chain, tables, ranks)
    except BaseException:
        for table in tables.values():
            table.clear()
        raise
    assign()
    return restored


def _restore(
    chain: list[StoredCheckpoint],
    model: Ranker,
    optimizer: Any | None,
    report: Callable[[str], None],
    ranks: Ranks,
) -> tuple[Restored, Callable[[], None]]:
    """Replaces this rank's tables; returns other contents, and a function to assign variables."""
    newest = chain[-1]
    tables = model.tables()
    _check_tables(newest, tables, ranks.size)
    variables = {stored.MODEL: model.dense_variables()}
    if optimizer is not None:
        variables[stored.OPTIMIZER] = optimizer.variables
    values = {file: read_arrays(newest.path / file) for file in variables}
    for file, own in variables.items():
        check_variables(own, values[file], newest.path / file)
    restored = Restored(
        position=Position.of_json(newest.facts["position"]),
        metrics=read_arrays(newest.path / stored.METRICS),
        random=_read_json(newest.path / stored.RANDOM),
        environment=newest.facts["environment"],
        lineage=Lineage.of_json(newest.facts.get("lineage", [])),
    )
    # Finds damage behind a valid checksum before anything changes.
    BinaryMetrics().set_state(restored.metrics)
    check_random_state(restored.random)
    for table in tables.values():
        restore_table(table, chain, report, ranks)

    def assign() -> None:
        for file, own in variables.items():
            assign_variables(own, values[file])

    return restored, assign


def _check_tables(checkpoint: StoredCheckpoint, tables: dict[str, Table], ranks: int) -> None:
    entries = checkpoint.facts["tables"]
    if tables.keys() != entries.keys():
        raise FailedPreconditionError(
            f"{checkpoint.path} has the tables {', '.join(entries)}, the model "
            f"{', '.join(tables)}; use the configuration of the run"
        )
    for name, table in tables.items():
        misfit = table_misfit(entries[name], table)
        if misfit:
            raise FailedPreconditionError(f"{misfit}; use the configuration of the run")
        check_fits(name, table, entries[name], ranks)


def table_misfit(written: dict[str, Any], table: Table) -> str:
    """Returns why a table cannot hold the rows of a manifest entry; "" if it can."""
    own = whole_layout(dict(table.layout), table.config.embedding_dim)
    optimizer = type(table.config.optimizer).__name__
    if (written["layout"], written["optimizer"]) == (own, optimizer):
        return ""
    return (
        f"table {table.name!r} was written with {_described(written['layout'])} of "
        f"{written['optimizer']}, the model has {_described(own)} of {optimizer}"
    )


def _described(layout: dict[str, Any]) -> str:
    return f"dim {layout['width']} and lines of {layout['line_bytes']} bytes"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as err:
        raise DataLossError(f"{path} cannot be read: {err}") from err
    return content
