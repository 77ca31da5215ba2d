"""Exports what training changed since a version's export to the servers of that version."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from hotrow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from hotrow.hold_bounds import HoldBounds
from hotrow.lineage import Lineage
from hotrow.manifest import Manifest, read_manifest, schema_hash
from hotrow.norms import Gates, Norm
from hotrow.ops.embedding import DistributedEmbedding
from hotrow.ops.export.changed_rows import KeysBefore, changed_rows
from hotrow.ops.export.dense_checkpoint import dense_checkpoint
from hotrow.ops.export.gates import checked_dense, measured_table, norms_shown
from hotrow.ops.export.live_version import point_to_existing
from hotrow.ops.export.row_options import RowOptions
from hotrow.ops.export.version import check_arguments, tables_of
from hotrow.ops.table import Table
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.cuts import CutRecord, TableChanges, cuts_of
from hotrow.store.generations import Generations
from hotrow.store.incremental_export import Changes, Outcome, export_changes
from hotrow.store.leases import lock_exports
from hotrow.store.published import PublishedLog
from hotrow.store.spec import Generation
from hotrow.version_layout import FILE_NAME

WAIT_SECONDS = 60.0
"""How long an export waits for servers, unless another time is asked for."""


@dataclass(frozen=True)
class ExportedChanges:
    """The result of an incremental export.

    Attributes:
        directory: the version directory.
        manifest: the version's manifest.
        outcome: the outcome of the export.
    """

    directory: Path
    manifest: Manifest
    outcome: Outcome

    def as_dict(self) -> dict[str, Any]:
        """Returns the result as JSON types."""
        cut = self.outcome.cut
        return {
            "directory": str(self.directory),
            "model": self.manifest.model,
            "version": self.manifest.version,
            "generation": self.manifest.generation,
            "store": self.manifest.store,
            "committed": self.outcome.committed,
            "waiting_for": [reader.holder for reader in self.outcome.waiting_for],
            "held_by": [reader.holder for reader in self.outcome.held_by],
            "overruled": [hold.reader.holder for hold in self.outcome.overruled],
            "cut": None
            if cut is None
            else {
                "version": f"{cut.version:016x}",
                "step": cut.step,
                "rows": cut.rows,
                "removed": cut.removed,
            },
        }


def check_change_arguments(name: str, version: int | None, store: str | None) -> None:
    """Checks the arguments that need no model; see `write_changes`."""
    check_arguments(name, version, RowOptions(store=store), standalone=False)


def find_version(base: Path, name: str, version: int | None) -> tuple[Path, Manifest]:
    """Returns the directory and the manifest of a version that accepts incremental exports.

    Args:
        base: folder of all models.
        name: the model's name.
        version: None: the newest.

    Raises:
        NotFoundError: the version does not exist.
        FailedPreconditionError: the version is sealed: its rows are in the graph or its directory.
    """
    folder = base / name
    numbers = sorted(int(p.name) for p in folder.glob("*") if p.name.isdecimal())
    if not numbers or (version is not None and version not in numbers):
        there = f"there are {', '.join(map(str, numbers))}" if numbers else "there is none"
        what = "a version" if version is None else f"version {version}"
        raise NotFoundError(f"{folder} has not {what} to change, {there}; make a full export")
    directory = folder / str(numbers[-1] if version is None else version)
    if not (directory / "assets" / FILE_NAME).exists():
        raise FailedPreconditionError(
            f"{directory} has no {FILE_NAME}: a standalone version cannot change; make a "
            "full export with a store (--store URL)"
        )
    manifest = read_manifest(directory / "assets" / FILE_NAME)
    if "://" not in manifest.store:
        raise FailedPreconditionError(
            f"{directory} has its rows in its own directory, which is sealed; make a "
            "full export with a store (--store URL)"
        )
    return directory, manifest


def write_changes(
    layers: Sequence[DistributedEmbedding],
    dense_variables: Sequence[tf.Variable],
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
    """Exports changed rows and dense weights to the servers of a version.

    A server switches to the new state as a whole. If this process is killed, servers keep the state
    that they have; the same call completes the export.

    Args:
        layers: as for the export of the version; not trained during the call.
        dense_variables: as for the export of the version; not trained during the call.
        base: folder of all models.
        name: the model's name.
        step: number of training steps so far.
        lineage: lineage of that training.
        version: None: the newest.
        store: another URL of the version's store; None: the URL in its manifest.
        access: credentials for the store.
        wait_seconds: how long to wait until all servers have taken the changes.
        report: called with lines of progress.
        committed: called with the cut once servers can read it.
        keys_before: called for tables that have forgotten which keys expired since the last export.
        gates: what rows and weights must keep to.
        undo_cuts: for how many of the newest exports to keep what they replace.
        bounds: how long, and with how many bytes, a reader may keep an export from replacing
            earlier rows.

    Raises:
        InvalidArgumentError: a name or version that is not legal.
        NotFoundError: the version does not exist, or the store does not have its rows.
        FailedPreconditionError: a gate refuses the changes; the version cannot change, has other
            tables or weights, or shows another training; a table has forgotten which keys expired;
            or another export of the model is running.
        ResourceExhaustedError: the store is full.
        UnavailableError: the store does not answer.
        DataLossError: the store has lost rows.
    """
    check_change_arguments(name, version, store)
    if not wait_seconds >= 0:
        raise InvalidArgumentError(f"--wait_seconds {wait_seconds}: must be 0 or more")
    directory, manifest = find_version(base, name, version)
    tables = tables_of(layers)
    features = [feature for layer in layers for feature in layer.layout.features]
    if schema_hash([t.config for t in tables.values()], features) != manifest.schema_hash:
        raise FailedPreconditionError(
            f"the model has other tables or features than {directory}; make a full export"
        )
    dense, as_exported = dense_checkpoint(dense_variables, directory)
    opened = open_store(store or manifest.store, access)
    try:
        with lock_exports(opened.records, manifest.model) as lock:
            generation = _generation(Generations(opened.records), manifest, opened.url)
            point_to_existing(Generations(opened.records), manifest.model, directory.parent)
            _check_tables(generation, manifest, tables, directory)
            stored = [tables[table.name] for table in generation.tables]
            published = PublishedLog.beside(directory, manifest.generation)
            cuts = cuts_of(opened.records, generation)
            before = norms_shown(manifest, cuts, published.states())
            norms = list(checked_dense(gates, dense_variables))
            gates.check_jumps(before, norms)

            def of_tables(since: Sequence[int]) -> Iterator[tuple[int, TableChanges]]:
                for number, table in enumerate(generation.tables):
                    measured = measured_table(table.name, table.row_type)
                    changed = changed_rows(
                        stored[number],
                        table.row_type,
                        since[number],
                        report,
                        keys_before=keys_before,
                        measured=measured,
                    )
                    for changes in changed:
                        yield number, changes
                    gates.check_finite(measured)
                    norms.append(measured.norm())

            def checked_norms() -> tuple[Norm, ...]:
                gates.check_jumps(before, norms)
                return tuple(norms)

            changes = Changes(
                step=step,
                lineage=lineage,
                clocks=tuple(table.step for table in stored),
                dense=dense,
                dense_as_exported=as_exported,
                of_tables=of_tables,
                norms=checked_norms,
                forced=gates.force,
            )
            outcome = export_changes(
                opened,
                generation,
                lock,
                changes,
                wait_seconds=wait_seconds,
                undo_cuts=undo_cuts,
                bounds=bounds,
                report=report,
                committed=committed,
                published=published,
            )
    finally:
        opened.close()
    if outcome.cut is not None and not (outcome.waiting_for or outcome.held_by):
        for table, clock in zip(stored, outcome.cut.clocks, strict=True):
            table.note_exported(f"{name} in {manifest.store}", clock)
    return ExportedChanges(directory, manifest, outcome)


def _generation(generations: Generations, manifest: Manifest, url: str) -> Generation:
    try:
        return generations.get(manifest.generation)
    except NotFoundError as err:
        raise NotFoundError(
            f"{url} has not the rows of version {manifest.version}, generation "
            f"{manifest.generation}: they were deleted, or the store went back to before they were "
            f"exported, or it is another store than {manifest.store}; make a full export"
        ) from err


def _check_tables(
    generation: Generation, manifest: Manifest, tables: Mapping[str, Table], directory: Path
) -> None:
    """Checks that the rows of tables can replace those of a generation.

    Raises:
        FailedPreconditionError: tables, features or default rows differ.
    """
    if generation.schema_hash != manifest.schema_hash:
        raise FailedPreconditionError(
            f"generation {generation.generation} has other tables than {directory}; make a full "
            "export"
        )
    for stored in generation.tables:
        own = tables[stored.name].default_value
        if own != stored.default_value:
            raise FailedPreconditionError(
                f"table {stored.name!r} has the default value {own}, in {directory} "
                f"{stored.default_value}; make a full export"
            )
