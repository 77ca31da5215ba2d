"""A version directory, from embedding layers, dense variables and signatures."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from hotrow.errors import AlreadyExistsError, InvalidArgumentError
from hotrow.manifest import Manifest, ManifestFeature, ManifestTable, schema_hash
from hotrow.ops.embedding import DistributedEmbedding
from hotrow.ops.export.rows import standalone_table, write_rows
from hotrow.ops.export.signatures import Signature, complete_signatures
from hotrow.ops.lookup import Lookup, StandaloneLookup, StoreLookup
from hotrow.ops.table import Table
from hotrow.sealed_directory import sealing
from hotrow.store_url import check_store_url
from hotrow.version_layout import FILE_NAME, ROWS

OWN_STORE = f"file:{ROWS}"
"""The store inside the version directory."""


def next_version(model_directory: Path) -> int:
    """Returns 1 more than the newest version in `<base>/<name>`, or 1."""
    numbers = [int(p.name) for p in model_directory.glob("*") if p.name.isdecimal()]
    return max(numbers, default=0) + 1


def check_arguments(name: str, version: int | None, store: str | None, standalone: bool) -> None:
    """Checks what can be checked before a model is loaded; see `write_version`."""
    if not name or "/" in name or name.startswith("."):
        raise InvalidArgumentError(f"--name {name!r}: must be a folder name without '/'")
    if version is not None and version < 1:
        raise InvalidArgumentError(f"--version {version}: must be 1 or more")
    if store is not None and standalone:
        raise InvalidArgumentError("--store with --standalone: a standalone export has no store")
    if store is not None:
        check_store_url("--store", store)


def write_version(
    layers: Sequence[DistributedEmbedding],
    dense_variables: Sequence[tf.Variable],
    signatures: Mapping[str, Signature],
    base: Path,
    name: str,
    *,
    step: int,
    version: int | None = None,
    store: str | None = None,
    standalone: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[Path, Manifest]:
    """Writes a version and returns its directory and manifest.

    Args:
        layers: the embedding layers that the signatures' functions call; nobody trains them
            meanwhile.
        dense_variables: every other variable that the functions use.
        signatures: by key; `serving_default` should be one.
        base: folder of all models.
        name: of the model, the name that requests use.
        step: training steps behind it, for the manifest.
        version: positive; None: one more than the newest.
        store: `file:///dir`; None: a store inside the version directory.
        standalone: rows in the graph's variables, stock TensorFlow ops only.
        report: gets a line of progress a table.

    Raises:
        AlreadyExistsError: the version exists.
        InvalidArgumentError: a name or version that cannot be a folder of TensorFlow Serving; two
            layers with a table or feature of one name.
        UnimplementedError: a store that is not `file://`.
    """
    check_arguments(name, version, store, standalone)
    tables = _tables_of(layers)
    folder = base / name
    folder.mkdir(parents=True, exist_ok=True)
    number = next_version(folder) if version is None else version
    final = folder / str(number)
    if final.exists():
        raise AlreadyExistsError(
            f"{final} exists already; versions are never rewritten: leave --version out for "
            f"{next_version(folder)}, or remove it"
        )
    manifest = _manifest(layers, tables, name, number, step, "" if standalone else store)
    with sealing(final, {"hotrow": manifest.model_dump()}) as directory:
        module = tf.Module(name="hotrow")
        module.dense_variables = list(dense_variables)
        if standalone:
            variables = {n: standalone_table(table) for n, table in tables.items()}
            module.keys = [table.keys for table in variables.values()]
            module.rows = [table.rows for table in variables.values()]
            _save(module, layers, lambda: StandaloneLookup(variables), signatures, directory)
        else:
            rows = str(directory / ROWS) if store is None else store.removeprefix("file://")
            for i, table in enumerate(tables.values()):
                report(f"table {table.name}: {table.size} rows ({i + 1}/{len(tables)})")
                write_rows(table, rows, manifest.generation)
            with _asset(manifest) as asset:
                module.manifest = asset
                _save(module, layers, lambda: StoreLookup(asset.asset_path), signatures, directory)
            # LMDB makes it anew; its content changes with every reader.
            (directory / ROWS / "lock.mdb").unlink(missing_ok=True)
    return final, manifest


def _tables_of(layers: Sequence[DistributedEmbedding]) -> dict[str, Table]:
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


def _manifest(
    layers: Sequence[DistributedEmbedding],
    tables: Mapping[str, Table],
    name: str,
    version: int,
    step: int,
    store: str | None,
) -> Manifest:
    features = [feature for layer in layers for feature in layer.layout.features]
    return Manifest(
        model=name,
        version=version,
        step=step,
        generation=uuid.uuid4().hex,
        store=OWN_STORE if store is None else store,
        tables=tuple(
            ManifestTable(
                name=t.name,
                dim=t.dim,
                rows=t.size,
                digest=t.digest(weights_only=True),
                default_value=t.default_value,
            )
            for t in tables.values()
        ),
        features=tuple(
            ManifestFeature(name=f.name, table=f.table.name, combiner=f.resolved_combiner)
            for f in features
        ),
        schema_hash=schema_hash([t.config for t in tables.values()], features),
    )


@contextlib.contextmanager
def _asset(manifest: Manifest) -> Iterator[Any]:
    """Yields the manifest as an asset; it keeps its file name, so it is first written aside."""
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
        # The lookup is made inside the graph that is being traced.
        def call(inputs: dict[str, Any]) -> dict[str, Any]:
            with contextlib.ExitStack() as stack:
                here = lookup()
                for layer in layers:
                    stack.enter_context(layer.looking_up_with(here))
                return function(inputs)

        return call

    traced = {
        key: Signature(looked_up(s.function), s.inputs, s.method).trace()
        for key, s in signatures.items()
    }
    tf.saved_model.save(module, str(directory), signatures=traced)
    complete_signatures(directory, signatures)
