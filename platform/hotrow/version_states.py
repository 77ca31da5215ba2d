"""What servers show of a model, and what they can go back to: versions, cuts, readers, bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hotrow.errors import HotrowError, NotFoundError
from hotrow.manifest import Manifest, read_manifest
from hotrow.model_listing import utc_date
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.cut_rollback import reachable
from hotrow.store.cuts import CutRecord, cuts_of
from hotrow.store.generations import Generations, ModelRecord
from hotrow.store.holding import holds, is_overruled
from hotrow.store.readers import readers
from hotrow.store.record_format import UNREADABLE, warn_skipped
from hotrow.store.row_store import RowStore
from hotrow.store.spec import RECORD_HEAD_BYTES, Generation, State
from hotrow.store.statistics import StoreStatistics
from hotrow.version_folder import set_aside_in, versions_in
from hotrow.version_layout import FILE_NAME


def states_in_folder(
    folder: Path, access: StoreAccess | None = None, store: str | None = None
) -> list[dict[str, Any]]:
    """Returns the models of a base folder, or the model of a folder of versions, as JSON types.

    Args:
        folder: `BASE_DIR` or `BASE_DIR/NAME`.
        access: credentials for the stores.
        store: another URL of the versions' stores; None: those in their manifests.

    Raises:
        NotFoundError: there are no versions.
    """
    models = [folder] if _has_versions(folder) else _models_in(folder)
    if not models:
        raise NotFoundError(
            f"{folder} has neither versions nor folders of versions; give BASE_DIR, "
            "BASE_DIR/NAME or the URL of a store"
        )
    with contextlib.ExitStack() as stack:
        opened: dict[str, RowStore | HotrowError] = {}

        def store_of(url: str) -> RowStore | HotrowError:
            url = store or url
            if url not in opened:
                try:
                    opened[url] = found = open_store(url, access)
                    stack.callback(found.close)
                except HotrowError as err:
                    opened[url] = err
            return opened[url]

        return [_model_in(path, store_of) for path in models]


def states_in_store(store: RowStore) -> list[dict[str, Any]]:
    """Returns the models of a store as JSON types; versions have no folders here.

    Raises:
        HotrowError: the store does not answer.
    """
    generations = Generations(store.records)
    models, skipped = generations.models()
    for left_out in skipped:
        warn_skipped(left_out)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in models}
    for generation in generations.all():
        record = models.get(generation.model, ModelRecord())
        live = record.live == generation.generation
        facts = _version(generation.version)
        try:
            facts |= _stored(store, generation, live)
            facts["can_go_back"] = not live and generation.state is State.COMPLETE
        except UNREADABLE as err:
            facts |= {"generation": generation.generation, "live": live, "problem": str(err)}
        found.setdefault(generation.model, []).append(facts)
    return [
        {"model": name, "directory": None, "versions": sorted(v, key=lambda x: int(x["version"]))}
        for name, v in sorted(found.items())
    ]


def _has_versions(folder: Path) -> bool:
    return bool({**versions_in(folder), **set_aside_in(folder)})


def _models_in(base: Path) -> list[Path]:
    return sorted(path for path in base.glob("*") if path.is_dir() and _has_versions(path))


def _model_in(folder: Path, store_of: Any) -> dict[str, Any]:
    seen, aside = versions_in(folder), set_aside_in(folder)
    newest = max(seen, default=None)
    versions = [
        _version_in(path, number, number == newest, number not in seen, store_of)
        for number, path in sorted({**aside, **seen}.items())
    ]
    return {"model": folder.resolve().name, "directory": str(folder), "versions": versions}


def _version(number: int) -> dict[str, Any]:
    return {
        "version": number,
        "directory": None,
        "newest": None,
        "set_aside": None,
        "can_go_back": False,
        "step": None,
        "rows": None,
        "disk_bytes": None,
        "store": None,
        "generation": None,
        "state": None,
        "live": None,
        "store_bytes": None,
        "readers": [],
        "cuts": [],
        "problem": None,
    }


def _version_in(
    path: Path, number: int, newest: bool, aside: bool, store_of: Any
) -> dict[str, Any]:
    files = (file for file in path.rglob("*") if file.is_file())
    facts = {
        **_version(number),
        "directory": str(path),
        "newest": newest,
        "set_aside": aside,
        "can_go_back": not newest,
        "disk_bytes": sum(file.stat().st_size for file in files),
    }
    try:
        manifest = read_manifest(path / "assets" / FILE_NAME)
    except NotFoundError:
        return facts  # standalone, or not ours
    except HotrowError as err:
        return {**facts, "problem": str(err), "can_go_back": False}
    facts |= {"step": manifest.step, "rows": manifest.rows, "store": manifest.store or None}
    if "://" not in manifest.store:
        return facts
    try:
        return {**facts, **_shared(store_of(manifest.store), manifest, newest)}
    except NotFoundError:
        problem = "its rows were deleted from the store"
        return {**facts, "live": False, "problem": problem, "can_go_back": False}
    except HotrowError as err:
        return {**facts, "problem": str(err), "can_go_back": False}


def _shared(store: RowStore | HotrowError, manifest: Manifest, newest: bool) -> dict[str, Any]:
    if isinstance(store, HotrowError):
        raise store
    generations = Generations(store.records)
    generation = generations.get(manifest.generation)
    live = generations.model(manifest.model).live == generation.generation
    complete = generation.state is State.COMPLETE
    return {**_stored(store, generation, live), "can_go_back": complete and not newest}


def _stored(store: RowStore, generation: Generation, live: bool) -> dict[str, Any]:
    """Returns what a store has of a version."""
    cuts = cuts_of(store.records, generation)
    return {
        "step": cuts[-1].step if cuts else generation.step,
        "rows": sum(table.rows for table in generation.tables),
        "generation": generation.generation,
        "state": str(generation.state),
        "live": live,
        "store_bytes": stored_bytes(generation, _statistics(store, generation)),
        "readers": _readers(store, generation, cuts),
        "cuts": _cuts(store, generation),
    }


def _readers(
    store: RowStore, generation: Generation, cuts: Sequence[CutRecord]
) -> list[dict[str, Any]]:
    """Returns the readers of a generation, and what each keeps from being folded."""
    holding = {hold.reader.holder: hold for hold in holds(store.records, generation, cuts)}
    found = []
    for reader in readers(store.records, generation.generation):
        facts: dict[str, Any] = {
            "holder": reader.holder,
            "cut": f"{reader.cut:016x}",
            "follows_cuts": reader.follows_cuts,
            "overruled": is_overruled(reader),
            "holds": None,
        }
        if (hold := holding.get(reader.holder)) is not None:
            facts["holds"] = {
                "cuts": hold.cuts,
                "bytes": hold.bytes,
                "since": utc_date(hold.since_ms),
                "seconds": round(hold.seconds),
            }
        found.append(facts)
    return found


def _cuts(store: RowStore, generation: Generation) -> list[dict[str, Any]]:
    """Returns the states of a generation with cuts, the newest first; none without cuts."""
    cuts = cuts_of(store.records, generation)
    back = reachable(store, generation)
    shown = [
        {
            "cut": f"{cut.version:016x}",
            "step": cut.step,
            "rows": cut.rows + cut.removed,
            "folded": cut.folded,
            "newest": cut is cuts[-1],
            "can_go_back": False,
            "bytes": 0,
        }
        for cut in reversed(cuts)
    ]
    known = {cut["cut"]: cut for cut in shown}
    for state in back:
        name = f"{state.shown.version:016x}"
        if name not in known:
            known[name] = {
                "cut": name,
                "step": state.shown.step,
                "rows": None,
                "folded": True,
                "newest": False,
            }
            shown.append(known[name])
        known[name] |= {"can_go_back": True, "bytes": state.bytes}
    return shown


def _statistics(store: RowStore, generation: Generation) -> StoreStatistics | None:
    return None if generation.state is State.DELETING else store.statistics(generation)


def stored_bytes(generation: Generation, statistics: StoreStatistics | None) -> int:
    """Returns the bytes of a generation's rows; in Redis, its own overhead included."""
    a_row: Mapping[str, float | None] = {}
    if statistics is not None:
        a_row = {table.name: table.bytes_a_row for table in statistics.tables}
    total = 0.0
    for table in generation.tables:
        total += table.rows * (a_row.get(table.name) or RECORD_HEAD_BYTES + table.row_bytes)
    return round(total)
