"""The versions of a model's folder, and the models of a base folder, without TensorFlow."""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path
from typing import Any

from hotrow import sealed_directory
from hotrow.errors import HotrowError, NotFoundError
from hotrow.inspection import Inspection
from hotrow.manifest import Manifest
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.cuts import cuts_of
from hotrow.store.generations import Generations
from hotrow.store.row_store import RowStore

_SAVED_MODEL = "saved_model.pb"


def is_model(folder: Path) -> bool:
    """Returns whether a folder has versions."""
    return bool(_versions(folder))


def is_base(folder: Path) -> bool:
    """Returns whether a folder has models."""
    return bool(_models(folder))


def inspect_base(folder: Path) -> Inspection:
    """Lists the models of a base folder with the numbers of their versions; reads no file."""
    models = [
        {"name": path.name, "versions": [int(version.name) for version in _versions(path)]}
        for path in _models(folder)
    ]
    return Inspection("base", str(folder), {"models": models}, ())


def inspect_model(folder: Path, access: StoreAccess | None = None) -> Inspection:
    """Lists the versions of a model: number, step, run, date, rows, last cut, live or not, size.

    It neither checks files nor reads rows: `inspect_version` does that for one version.

    Args:
        folder: `BASE_DIR/NAME`.
        access: credentials for the stores.
    """
    with contextlib.ExitStack() as stack:
        stores: dict[str, RowStore | HotrowError] = {}

        def opened(url: str) -> RowStore | HotrowError:
            if url not in stores:
                try:
                    store = open_store(url, access)
                except HotrowError as err:
                    stores[url] = err
                else:
                    stack.callback(store.close)
                    stores[url] = store
            return stores[url]

        versions = [_version(path, opened) for path in _versions(folder)]
    return Inspection(
        "model", str(folder), {"model": folder.resolve().name, "versions": versions}, ()
    )


def _version(path: Path, opened: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "version": int(path.name),
        "step": None,
        "exported_step": None,
        "created": None,
        "checkpoint": None,
        "rows": None,
        "export": None,
        "live": None,
        "store": None,
        "generation": None,
        "bytes": sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
        "problem": None,
    }
    try:
        content = sealed_directory.read_manifest(path)
        manifest = Manifest.model_validate(content["hotrow"])
    except (HotrowError, KeyError, ValueError):
        return {**facts, "problem": "no version that Hotrow wrote, or damaged"}
    facts |= {
        "step": manifest.step,
        "exported_step": manifest.step,
        "created": utc_date(manifest.created_ms),
        "checkpoint": manifest.checkpoint or None,
        "rows": manifest.rows,
        "export": "full",
        "store": manifest.store or None,
        "generation": manifest.generation,
    }
    if "://" not in manifest.store:
        return facts  # its rows are in its directory, and cannot change
    store = opened(manifest.store)
    if isinstance(store, HotrowError):
        return {**facts, "problem": str(store)}
    try:
        return {**facts, **_stored(store, manifest)}
    except NotFoundError:
        return {**facts, "live": False, "problem": "its rows were deleted from the store"}
    except HotrowError as err:
        return {**facts, "problem": str(err)}


def _stored(store: RowStore, manifest: Manifest) -> dict[str, Any]:
    """Returns what a version's store records beyond its manifest."""
    generations = Generations(store.records)
    generation = generations.get(manifest.generation)
    live = generations.model(manifest.model).live == generation.generation
    cuts = cuts_of(store.records, generation)
    if not cuts:
        return {"live": live}
    return {"live": live, "step": cuts[-1].step, "export": "incremental"}


def utc_date(created_ms: int) -> str | None:
    """Returns a time in ISO 8601; None for 0."""
    if not created_ms:
        return None
    moment = datetime.datetime.fromtimestamp(created_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _versions(folder: Path) -> list[Path]:
    found = [p for p in folder.glob("*") if p.name.isdecimal() and (p / _SAVED_MODEL).exists()]
    return sorted(found, key=lambda path: int(path.name))


def _models(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_dir() and _versions(path))
