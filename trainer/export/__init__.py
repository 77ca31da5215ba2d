"""Exports the models of the trainer, with signatures over the columns of their data files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hotrow.manifest import Manifest
from hotrow.ops.export import RowOptions, write_version
from hotrow.trainer.export.column_signatures import column_signatures
from hotrow.trainer.models import Ranker


def export_version(
    model: Ranker,
    base: Path,
    name: str,
    *,
    step: int,
    version: int | None = None,
    rows: RowOptions = RowOptions(),  # noqa: B008 (frozen)
    standalone: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[Path, Manifest]:
    """Writes a version and returns its directory and manifest; see `write_version`."""
    return write_version(
        [] if model.embedding is None else [model.embedding],
        [variable.value for variable in model.dense_variables()],
        column_signatures(model),
        base,
        name,
        step=step,
        version=version,
        rows=rows,
        standalone=standalone,
        report=report,
    )
