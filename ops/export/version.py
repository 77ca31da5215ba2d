"""A version directory, from embedding layers, dense variables and signatures."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from hotrow.errors import AlreadyExistsError, InvalidArgumentError
from hotrow.lineage import Lineage
from hotrow.manifest import Manifest, ManifestFeature, ManifestTable, schema_hash
from hotrow.norms import Gates, Norm
from hotrow.ops.embedding import DistributedEmbedding
from hotrow.ops.export.gates import checked_version, norms_of_newest
from hotrow.ops.export.hot_rows import write_hot_rows
from hotrow.ops.export.live_version import point_to_existing
from hotrow.ops.export.row_options import RowOptions
from hotrow.ops.export.signatures import Signature, complete_signatures
from hotrow.ops.export.standalone import standalone_table
from hotrow.ops.export.stored_rows import StoredRows, source_of
from hotrow.ops.lookup import Lookup, StandaloneLookup, StoreLookup
from hotrow.ops.table import Table
from hotrow.sealed_directory import sealing
from hotrow.spec import FeatureConfig
from hotrow.store import open_store
from hotrow.store.deletion import delete_unneeded
from hotrow.store.full_export import Exported, write_generation
from hotrow.store.generations import Generations
from hotrow.store.leases import lock_exports
from hotrow.store.lmdb import LmdbStore
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation, Origin
from hotrow.version_folder import next_version, set_aside_in
from hotrow.version_layout import FILE_NAME, HOT_ROWS, ROWS

OWN_STORE = f"file:{ROWS}"
"""The store inside the version directory."""


_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_arguments(name: str, version: int | None, rows: RowOptions, standalone: bool) -> None:
    """Checks the arguments that need no model; see `write_version`."""
    if not _MODEL_NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"--name {name!r}: legal are letters, digits, '.', '_' and '-', the first a letter or "
            "digit; it is a folder, and a part of the URLs of requests"
        )
    if version is not None and version < 1:
        raise InvalidArgumentError(f"--version {version}: must be 1 or more")
    rows.check(standalone)


def write_version(
    layers: Sequence[DistributedEmbedding],
    dense_variables: Sequence[tf.Variable],
    signatures: Mapping[str, Signature],
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
    """Writes a version and returns its directory and manifest.

    Args:
        layers: the embedding layers that the signatures' functions call; not trained during the
            call.
        dense_variables: every other variable that the functions use.
        signatures: by key; include `serving_default`.
        base: folder of all models.
        name: the model's name, which requests use.
        step: number of training steps so far, for the manifest.
        lineage: lineage of that training; without one, no incremental export can follow.
        version: positive; None: one more than the newest.
        rows: store and encoding of the rows.
        standalone: put the rows into the graph's variables, with stock TensorFlow ops only.
        checkpoint: name of the model's checkpoint, for the manifest.
        gates: what rows and weights must keep to.
        report: called with lines of progress.

    Raises:
        AlreadyExistsError: the version exists.
        InvalidArgumentError: a name or version that cannot be a folder of TensorFlow Serving; or a
            table or feature name that two layers share.
        FailedPreconditionError: a gate refuses it, another export of the model is running, or the
            store may evict rows.
        ResourceExhaustedError: the disk or the store is full. The store keeps the rows that it has;
            the same export resumes from them.
        UnavailableError: the store does not answer. The same export resumes.
        DataLossError: the store returns other rows than were written.
    """
    check_arguments(name, version, rows, standalone)
    tables = tables_of(layers)
    folder = base / name
    number = next_version(folder) if version is None else version
    final = folder / str(number)
    if final.exists():
        raise AlreadyExistsError(
            f"{final} exists already; versions are never rewritten: leave --version out for "
            f"{next_version(folder)}, or remove it"
        )
    if number in set_aside_in(folder):
        raise AlreadyExistsError(
            f"version {number} of {folder} was set aside by a rollback, and servers may still have "
            f"it: leave --version out for {next_version(folder)}"
        )
    norms = checked_version(
        gates, tables.values(), rows.row_type, dense_variables, norms_of_newest(folder, rows.access)
    )
    folder.mkdir(parents=True, exist_ok=True)
    facts = _Facts(name, number, step, lineage, layers, tables, checkpoint, norms)
    sealed: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        export: _RowExport | None = None
        with sealing(final, sealed) as directory:
            module = tf.Module(name="hotrow")
            module.dense_variables = list(dense_variables)
            if standalone:
                manifest = facts.standalone_manifest()
                variables = {n: standalone_table(table) for n, table in tables.items()}
                module.keys = [table.keys for table in variables.values()]
                module.rows = [table.rows for table in variables.values()]
                _save(module, layers, lambda: StandaloneLookup(variables), signatures, directory)
            else:
                export = stack.enter_context(_RowExport(facts, rows, folder, directory, report))
                generation = export.write()
                manifest = facts.manifest(generation, rows.store or OWN_STORE)
                write_hot_rows(list(tables.values()), directory / HOT_ROWS)
                with _asset(manifest) as asset:
                    module.manifest = asset
                    _save(
                        module, layers, lambda: StoreLookup(asset.asset_path), signatures, directory
                    )
                # LMDB makes this file again; its content changes with every reader.
                (directory / ROWS / "lock.mdb").unlink(missing_ok=True)
            sealed["hotrow"] = manifest.model_dump()
        if export is not None:
            export.finish()
            if rows.store is not None and rows.top is None:
                for table in tables.values():
                    table.note_exported(f"{name} in {rows.store}", table.step)
    return final, manifest


def tables_of(layers: Sequence[DistributedEmbedding]) -> dict[str, Table]:
    """Returns the tables of layers by name.

    Raises:
        InvalidArgumentError: two layers share the name of a table or feature.
    """
    tables: dict[str, Table] = {}
    features: set[str] = set()
    for layer in layers:
        own = {feature.name for feature in layer.layout.features}
        twice = sorted((tables.keys() & layer.tables.keys()) | (features & own))
        if twice:
            raise InvalidArgumentError(
                f"two embedding layers have a table or feature {twice[0]!r}; an export needs "
                "names that are unique in the model"
            )
        tables.update(layer.tables)
        features |= own
    return tables


@dataclass(frozen=True)
class _Facts:
    """The parts of an export."""

    name: str
    version: int
    step: int
    lineage: Lineage
    layers: Sequence[DistributedEmbedding]
    tables: Mapping[str, Table]
    checkpoint: str
    norms: tuple[Norm, ...]

    @property
    def schema_hash(self) -> str:
        return schema_hash([t.config for t in self.tables.values()], self.features)

    @property
    def features(self) -> list[FeatureConfig]:
        return [feature for layer in self.layers for feature in layer.layout.features]

    def manifest(self, generation: Generation, store: str) -> Manifest:
        tables = [
            ManifestTable(
                name=t.name,
                dim=t.dim,
                dtype=t.row_type,
                rows=t.rows,
                digest=t.digest,
                default_value=t.default_value,
            )
            for t in generation.tables
        ]
        return self._manifest(generation.generation, store, tables)

    def standalone_manifest(self) -> Manifest:
        tables = [
            ManifestTable(
                name=t.name,
                dim=t.dim,
                rows=t.size,
                digest=t.digest(weights_only=True),
                default_value=t.default_value,
            )
            for t in self.tables.values()
        ]
        return self._manifest(uuid.uuid4().hex, "", tables)

    def _manifest(self, generation: str, store: str, tables: Sequence[ManifestTable]) -> Manifest:
        return Manifest(
            model=self.name,
            version=self.version,
            step=self.step,
            generation=generation,
            store=store,
            tables=tuple(tables),
            features=tuple(
                ManifestFeature(name=f.name, table=f.table.name, combiner=f.resolved_combiner)
                for f in self.features
            ),
            schema_hash=self.schema_hash,
            created_ms=time.time_ns() // 1_000_000,
            checkpoint=self.checkpoint,
            norms=self.norms,
        )


class _RowExport:
    """Exports the rows of a version to a store; use it in a `with` statement."""

    def __init__(
        self,
        facts: _Facts,
        options: RowOptions,
        versions: Path,
        directory: Path,
        report: Callable[[str], None],
    ) -> None:
        self._facts = facts
        self._options = options
        self._versions = versions
        self._report = report
        self._stack = contextlib.ExitStack()
        if options.store is None:
            self._store: RowStore = LmdbStore(directory / ROWS, create=True)
        else:
            self._store = open_store(options.store, options.access, create=True)
        self._stack.callback(self._store.close)

    def __enter__(self) -> _RowExport:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def write(self) -> Generation:
        """Writes all rows as a generation and returns it."""
        facts, options = self._facts, self._options
        tables = list(facts.tables.values())
        sources = [StoredRows(table, options.row_type, options.top) for table in tables]
        source = source_of(facts.step, sources, tables)
        self._lock = self._stack.enter_context(
            lock_exports(self._store.records, facts.name, lender=options.lender)
        )
        if options.store is not None:
            point_to_existing(Generations(self._store.records), facts.name, self._versions)
        # Another export that begins after this line, although the lock was lost unnoticed, keeps
        # this one from moving the live version back.
        self._writer = Generations(self._store.records).next_epoch(facts.name)
        # Removes the rows of failed exports; otherwise a full store would stay full.
        self._delete_unneeded(source)
        exported = Exported(
            model=facts.name,
            version=facts.version,
            step=facts.step,
            source=source,
            schema_hash=facts.schema_hash,
            origin=Origin(
                lineage=facts.lineage.id,
                clocks=tuple(table.step for table in tables),
                top=options.top,
            ),
        )
        self._generation = write_generation(
            self._store,
            exported,
            sources,
            self._lock,
            shards=options.shards,
            growth=options.growth,
            writer=self._writer,
            report=self._report,
        )
        if options.store is None:
            # An embedded store moves with its directory.
            self._publish()
            self._stack.close()
        return self._generation

    def finish(self) -> None:
        """Makes the generation live, now that its version is there, and deletes older ones."""
        if self._options.store is not None:
            self._publish()
            self._delete_unneeded(None)

    def _publish(self) -> None:
        self._lock.check()
        Generations(self._store.records).make_live(self._generation, self._writer)

    def _delete_unneeded(self, resumable: str | None) -> None:
        delete_unneeded(
            self._store,
            self._facts.name,
            self._options.keep_generations,
            resumable,
            self._report,
        )


@contextlib.contextmanager
def _asset(manifest: Manifest) -> Iterator[Any]:
    """Yields the manifest as an asset, from a temporary folder; assets keep their file names."""
    aside = Path(tempfile.mkdtemp(prefix="hotrow-export-"))
    try:
        path = aside / FILE_NAME
        path.write_text(manifest.to_json())
        yield tf.saved_model.Asset(str(path))
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _save(
    module: tf.Module,
    layers: Sequence[DistributedEmbedding],
    lookup: Callable[[], Lookup],
    signatures: Mapping[str, Signature],
    directory: Path,
) -> None:
    def looked_up(function: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        # The lookup is made inside the traced graph.
        def call(inputs: dict[str, Any]) -> dict[str, Any]:
            with contextlib.ExitStack() as stack:
                here = lookup()
                for layer in layers:
                    stack.enter_context(layer.looking_up_with(here))
                outputs = dict(function(inputs))
            return {**outputs, **here.sample_counts()}

        return call

    traced = {
        key: Signature(looked_up(s.function), s.inputs, s.method).trace()
        for key, s in signatures.items()
    }
    tf.saved_model.save(module, str(directory), signatures=traced)
    complete_signatures(directory, signatures)
