"""Norms of a model's tables and dense weights, and of the export before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from hotrow.errors import HotrowError
from hotrow.manifest import Manifest, read_manifest
from hotrow.norms import Gates, Measured, Norm
from hotrow.ops.table import Table
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.cuts import CutRecord, cuts_of
from hotrow.store.generations import Generations
from hotrow.store.published import PublishedLog, PublishedState
from hotrow.store.spec import RowType
from hotrow.version_layout import FILE_NAME

_READ_ROWS = 65536
_READ_VALUES = 1 << 20
# Larger values are infinite in these types.
_LIMITS: dict[RowType, float] = {"float16": 65504.0, "bfloat16": 3.3895313e38}
_PATIENCE_SECONDS = 5.0


def measured_table(name: str, row_type: RowType) -> Measured:
    """Returns a measure of a table's rows, without rows yet."""
    return Measured(f"table {name!r}", _LIMITS.get(row_type, np.inf))


def measured_dense(number: int, name: str, values: npt.NDArray[np.floating]) -> Measured:
    """Returns the measure of the values of a dense weight.

    Args:
        number: of the weight among those of the model.
        name: of its variable.
        values: of any shape.
    """
    what = f"dense weight {number} ({name}, {list(values.shape)})"
    measured = Measured(what, of_table=False)
    flat = values.reshape(1, -1)
    for first in range(0, flat.size, _READ_VALUES):
        piece = flat[:, first : first + _READ_VALUES].astype(np.float64)
        measured.add(np.zeros(1, np.int64), piece)
    return measured


def checked_dense(gates: Gates, variables: Sequence[tf.Variable]) -> tuple[Norm, ...]:
    """Returns the norms of all weights of a floating type.

    Raises:
        GateError: a value is not finite.
    """
    norms = []
    for number, variable in enumerate(variables):
        if not variable.dtype.is_floating:
            continue
        name = variable.name.partition(":")[0]
        measured = measured_dense(number, name, np.asarray(variable.numpy()))
        gates.check_finite(measured)
        norms.append(measured.norm())
    return tuple(norms)


def checked_version(
    gates: Gates,
    tables: Iterable[Table],
    row_type: RowType | None,
    variables: Sequence[tf.Variable],
    before: Sequence[Norm],
) -> tuple[Norm, ...]:
    """Returns the norms of all that a full export publishes; reads every row.

    Args:
        gates: what it must keep to.
        tables: not trained during the call.
        row_type: how weights will be stored; None: as each table has them.
        variables: the dense weights.
        before: norms of the export before.

    Raises:
        GateError: a value is not finite, or a norm jumps.
    """
    norms = list(checked_dense(gates, variables))
    gates.check_jumps(before, norms)
    for table in tables:
        measured = measured_table(table.name, row_type or table.config.dtype)
        for batch in table.export_batches(_READ_ROWS):
            measured.add(batch.keys, batch.weights)
        gates.check_finite(measured)
        norms.append(measured.norm())
    gates.check_jumps(before, norms)
    return tuple(norms)


def norms_of_newest(folder: Path, access: StoreAccess) -> tuple[Norm, ...]:
    """Returns the norms of what the newest version of a model shows; () if they are not known.

    Args:
        folder: of its versions.
        access: credentials for its store.
    """
    numbers = sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal())
    if not numbers:
        return ()
    try:
        directory = folder / str(numbers[-1])
        manifest = read_manifest(directory / "assets" / FILE_NAME)
        published = PublishedLog.beside(directory, manifest.generation).states()
    except HotrowError:
        return ()  # not ours, or damaged
    return norms_shown(manifest, _cuts_of(manifest, access), published)


def norms_shown(
    manifest: Manifest, cuts: Sequence[CutRecord], published: Sequence[PublishedState] = ()
) -> tuple[Norm, ...]:
    """Returns the norms of a version with its cuts.

    Args:
        manifest: of the version.
        cuts: its cuts in the store, the oldest first.
        published: what exporters remember of them; a store that went back in time has lost some.
    """
    known: list[CutRecord | PublishedState] = [*cuts, *published]
    newest = max(known, key=lambda cut: (cut.version, bool(cut.norms)), default=None)
    return newest.norms if newest is not None and newest.norms else manifest.norms


def _cuts_of(manifest: Manifest, access: StoreAccess) -> list[CutRecord]:
    if "://" not in manifest.store:
        return []
    try:
        store = open_store(manifest.store, access, patience_seconds=_PATIENCE_SECONDS)
        try:
            generation = Generations(store.records).get(manifest.generation)
            return cuts_of(store.records, generation)
        finally:
            store.close()
    except HotrowError:
        return []  # gone, or other credentials: the version as exported is compared
