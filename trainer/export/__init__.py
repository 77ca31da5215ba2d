"""Writes a trained model as a version directory that TensorFlow Serving users recognise (D9).

`<base>/<name>/<version>/` holds `saved_model.pb`, `variables/`, `assets/hotrow_manifest.json`,
`rows/` (the embedded store, unless another is named) and `manifest.json` with the checksum of
every file. It appears whole, by one rename.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

from hotrow.errors import AlreadyExistsError, InvalidArgumentError, UnimplementedError
from hotrow.manifest import FILE_NAME, Manifest, ManifestFeature, ManifestTable, schema_hash
from hotrow.trainer.export.graph import save_module, standalone_module, store_module
from hotrow.trainer.export.rows import standalone_table, write_rows
from hotrow.trainer.models import Ranker
from hotrow.trainer.sealed_directory import sealing

OWN_STORE = "file:rows"
"""The store inside the version directory."""


def next_version(model_directory: Path) -> int:
    """Returns 1 more than the newest version in `<base>/<name>`, or 1."""
    numbers = [int(p.name) for p in model_directory.glob("*") if p.name.isdecimal()]
    return max(numbers, default=0) + 1


def export_version(
    model: Ranker,
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
        model: trained; nobody trains it meanwhile.
        base: folder of all models.
        name: of the model, the name that requests use.
        step: training steps behind it, for the manifest.
        version: positive; None: one more than the newest.
        store: `file:///dir`; None: a store inside the version directory.
        standalone: rows in the graph's variables, stock TensorFlow ops only.
        report: gets a line of progress a table.

    Raises:
        AlreadyExistsError: the version exists.
        InvalidArgumentError: a name or version that cannot be a folder of TensorFlow Serving.
        UnimplementedError: a store that is not `file://`.
    """
    check_arguments(name, version, store, standalone)
    folder = base / name
    folder.mkdir(parents=True, exist_ok=True)
    number = next_version(folder) if version is None else version
    final = folder / str(number)
    if final.exists():
        raise AlreadyExistsError(
            f"{final} exists already; versions are never rewritten: leave --version out for "
            f"{next_version(folder)}, or remove it"
        )
    manifest = _manifest(model, name, number, step, "" if standalone else store or OWN_STORE)
    with sealing(final, {"hotrow": manifest.model_dump()}) as directory:
        if standalone:
            tables = {t.name: standalone_table(t) for t in model.tables().values()}
            save_module(standalone_module(model, tables), directory)
        else:
            rows = str(directory / "rows") if store is None else store.removeprefix("file://")
            for i, table in enumerate(model.tables().values()):
                report(f"table {table.name}: {table.size} rows ({i + 1}/{len(model.tables())})")
                write_rows(table, rows, manifest.generation)
            _save_with_manifest(model, manifest, directory)
            # LMDB makes it anew; its content changes with every reader.
            (directory / "rows" / "lock.mdb").unlink(missing_ok=True)
    return final, manifest


def check_arguments(name: str, version: int | None, store: str | None, standalone: bool) -> None:
    """Checks what can be checked before a model is loaded; see `export_version`."""
    if not name or "/" in name or name.startswith("."):
        raise InvalidArgumentError(f"--name {name!r}: must be a folder name without '/'")
    if version is not None and version < 1:
        raise InvalidArgumentError(f"--version {version}: must be 1 or more")
    if store is not None and standalone:
        raise InvalidArgumentError("--store with --standalone: a standalone export has no store")
    if store is not None and not store.startswith("file:///"):
        if store.startswith(("redis://", "rediss://", "redis+cluster://")):
            raise UnimplementedError(
                f"--store {store}: Redis stores are not built yet; use file:///DIR"
            )
        raise InvalidArgumentError(f"--store {store!r}: must be file:///DIR, an absolute path")


def _manifest(model: Ranker, name: str, version: int, step: int, store: str) -> Manifest:
    tables = model.tables().values()
    layout = model.embedding.layout if model.embedding is not None else None
    features = layout.features if layout is not None else ()
    return Manifest(
        model=name,
        version=version,
        step=step,
        generation=uuid.uuid4().hex,
        store=store,
        tables=tuple(
            ManifestTable(
                name=t.name,
                dim=t.dim,
                rows=t.size,
                digest=t.digest(weights_only=True),
                default_value=t.config.default_value,
            )
            for t in tables
        ),
        features=tuple(
            ManifestFeature(name=f.name, table=f.table.name, combiner=f.resolved_combiner)
            for f in features
        ),
        schema_hash=schema_hash([t.config for t in tables], features),
    )


def _save_with_manifest(model: Ranker, manifest: Manifest, directory: Path) -> None:
    # The asset keeps its file name, so it is written under that name somewhere else first.
    aside = Path(tempfile.mkdtemp(prefix="hotrow-export-"))
    try:
        path = aside / FILE_NAME
        path.write_text(manifest.to_json())
        save_module(store_module(model, str(path)), directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
