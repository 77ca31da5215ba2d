"""Exports the models of the trainer, with signatures over the columns of their data files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from hotrow.hold_bounds import HoldBounds
from hotrow.lineage import Lineage
from hotrow.manifest import Manifest
from hotrow.norms import Gates
from hotrow.ops.embedding import DistributedEmbedding
from hotrow.ops.export import (
    WAIT_SECONDS,
    ExportedChanges,
    KeysBefore,
    RowOptions,
    write_changes,
    write_version,
)
from hotrow.store.access import StoreAccess
from hotrow.store.cuts import CutRecord
from hotrow.trainer.export.column_signatures import column_signatures
from hotrow.trainer.models import Ranker


def export_version(
    model: Ranker,
    base: Path,
    name: str,
    *,
    step: int,
    lineage: Lineage = Lineage(),  # noqa: B008 (frozen)
    version: int | None = None,
    rows: RowOptions = RowOptions(),  # noqa: B008 (frozen)
    standalone: bool = False,
    checkpoint: str = "",
    gates: Gates = Gates(),  # noqa: B008 (frozen)
    report: Callable[[str], None] = lambda line: None,
) -> tuple[Path, Manifest]:
    """Writes a version and returns its directory and manifest; see `write_version`."""
    return write_version(
        *_parts_of(model),
        column_signatures(model),
        base,
        name,
        step=step,
        lineage=lineage,
        version=version,
        rows=rows,
        standalone=standalone,
        checkpoint=checkpoint,
        gates=gates,
        report=report,
    )


def export_version_changes(
    model: Ranker,
    base: Path,
    name: str,
    *,
    step: int,
    lineage: Lineage,
    version: int | None = None,
    store: str | None = None,
    access: StoreAccess = StoreAccess(),  # noqa: B008 (frozen)
    wait_seconds: float = WAIT_SECONDS,
    report: Callable[[str], None] = lambda line: None,
    committed: Callable[[CutRecord], None] = lambda cut: None,
    keys_before: KeysBefore = lambda table, step: None,
    gates: Gates = Gates(),  # noqa: B008 (frozen)
    undo_cuts: int = 1,
    bounds: HoldBounds = HoldBounds(),  # noqa: B008 (frozen)
) -> ExportedChanges:
    """Exports changes to the servers of a version; see `write_changes`."""
    return write_changes(
        *_parts_of(model),
        base,
        name,
        step=step,
        lineage=lineage,
        version=version,
        store=store,
        access=access,
        wait_seconds=wait_seconds,
        report=report,
        committed=committed,
        keys_before=keys_before,
        gates=gates,
        undo_cuts=undo_cuts,
        bounds=bounds,
    )


def _parts_of(model: Ranker) -> tuple[list[DistributedEmbedding], list[tf.Variable]]:
    layers = [] if model.embedding is None else [model.embedding]
    return layers, [variable.value for variable in model.dense_variables()]
