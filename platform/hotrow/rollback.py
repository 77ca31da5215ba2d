"""Goes back to an earlier version of a model, or forward again (docs/design/0007-stores.md).

Servers choose versions by the folders that they see, as TensorFlow Serving does. So newer versions
are set aside under names that are no numbers: servers load the older version, route requests to it,
and then unload the newer one. Nothing is deleted.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotrow.errors import (
    DataLossError,
    FailedPreconditionError,
    HotrowError,
    NotFoundError,
    PermissionDeniedError,
)
from hotrow.manifest import Manifest, read_manifest
from hotrow.store import open_store
from hotrow.store.access import StoreAccess
from hotrow.store.cut_dense import PREFIX, pack
from hotrow.store.cut_rollback import roll_back_to_cut
from hotrow.store.cuts import CutRecord, cuts_of
from hotrow.store.generations import Generations
from hotrow.store.incremental_export import Outcome, wait_until_taken
from hotrow.store.leases import exporter_of, lock_exports
from hotrow.store.process_identity import has_ended
from hotrow.store.published import PublishedLog
from hotrow.store.readers import Reader, readers
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation, State
from hotrow.version_folder import hide, set_aside_in, show, versions_in
from hotrow.version_layout import FILE_NAME

_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class RolledBack:
    """The outcome of a rollback to a version.

    Attributes:
        directory: the version that is the newest one now.
        version: its number.
        set_aside: numbers of the versions that servers do not see any more.
        live_before: number of the newest version before.
        seconds: until no server read a version that was set aside; None: servers cannot be seen,
            because no rows of these versions are in a shared store.
        waiting_for: servers that still read one.
    """

    directory: Path
    version: int
    set_aside: tuple[int, ...]
    live_before: int | None
    seconds: float | None
    waiting_for: tuple[Reader, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Returns the result as JSON types."""
        return {
            "directory": str(self.directory),
            "version": self.version,
            "set_aside": list(self.set_aside),
            "live_before": self.live_before,
            "seconds": self.seconds,
            "waiting_for": [reader.holder for reader in self.waiting_for],
        }


def roll_back(
    folder: Path,
    version: int,
    access: StoreAccess | None = None,
    *,
    store: str | None = None,
    wait_seconds: float,
    report: Callable[[str], None] = lambda line: None,
) -> RolledBack:
    """Makes a version the newest one that servers see, and its rows the live ones of its store.

    If the process is killed, the same call completes the rollback.

    Args:
        folder: `BASE_DIR/NAME`.
        version: an older version, or one that was set aside.
        access: credentials for the stores.
        store: another URL of the versions' store; None: those in their manifests.
        wait_seconds: how long to wait until all servers have left the newer versions.
        report: called with lines of progress.

    Raises:
        NotFoundError: no such version, or its rows are gone.
        FailedPreconditionError: an export of the model is running.
        DataLossError: the version or its rows are damaged.
        UnavailableError: its store does not answer.
    """
    began = time.monotonic()
    path = _path_of(folder, version)
    newer = {n: p for n, p in versions_in(folder).items() if n > version}
    before = max(versions_in(folder), default=None)
    with contextlib.ExitStack() as stack:
        stores = _Stores(stack, access, store)
        with _live_rows(path, stores) as make_live:
            left = [found for p in newer.values() if (found := _shared_rows(p))]
            path = _make_newest(path, newer)
            make_live()
        if not left:
            return RolledBack(path, version, tuple(newer), before, None)
        behind = _wait_until_left(left, stores, wait_seconds, report)
    seconds = time.monotonic() - began
    return RolledBack(path, version, tuple(newer), before, seconds, tuple(behind))


def _path_of(folder: Path, version: int) -> Path:
    seen, aside = versions_in(folder), set_aside_in(folder)
    path = seen.get(version, aside.get(version))
    if path is None:
        there = ", ".join(map(str, sorted({*seen, *aside}))) or "none"
        raise NotFoundError(
            f"{folder} has no version {version}; it has {there}; `platform versions {folder}` "
            "lists what can be gone back to"
        )
    if not any((path / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
        raise DataLossError(f"{path} holds no SavedModel; servers cannot load it")
    return path


class _Stores:
    """The stores of a model's versions, each opened once."""

    def __init__(
        self, stack: contextlib.ExitStack, access: StoreAccess | None, store: str | None
    ) -> None:
        self._stack = stack
        self._access = access
        self._store = store
        self._open: dict[str, RowStore] = {}

    def open(self, url: str) -> RowStore:
        """Returns the store that a manifest names.

        Raises:
            HotrowError: see `open_store`.
        """
        url = self._store or url
        if url not in self._open:
            self._open[url] = open_store(url, self._access)
            self._stack.callback(self._open[url].close)
        return self._open[url]


def _shared_rows(path: Path) -> Manifest | None:
    """Returns the manifest of a version whose rows are in a shared store."""
    try:
        manifest = read_manifest(path / "assets" / FILE_NAME)
    except HotrowError:
        return None  # standalone, not ours, or damaged
    return manifest if "://" in manifest.store else None


@contextlib.contextmanager
def _live_rows(path: Path, stores: _Stores) -> Iterator[Callable[[], None]]:
    """Checks the rows of a version; yields what makes them live. No export runs meanwhile."""
    manifest = _shared_rows(path)
    if manifest is None:
        yield lambda: None
        return
    store = stores.open(manifest.store)
    generations = Generations(store.records)
    with lock_exports(store.records, manifest.model) as lock:
        try:
            generation = generations.get(manifest.generation)
        except NotFoundError as err:
            raise NotFoundError(
                f"the rows of {path} were deleted from {store.url} (--keep_generations of an "
                "export keeps more); export that checkpoint again: platform export --step "
                f"{manifest.step}"
            ) from err
        if generation.state is not State.COMPLETE:
            raise FailedPreconditionError(
                f"the rows of {path} in {store.url} are {generation.state}, not complete"
            )
        if missing := store.missing_markers(generation):
            raise DataLossError(
                f"{store.url} has lost {len(missing)} of {generation.shards} shards of the rows "
                f"of {path}; export that checkpoint again: platform export --step {manifest.step}"
            )

        writer = generations.next_epoch(manifest.model)

        def make_live() -> None:
            lock.check()
            generations.make_live(generation, writer)

        yield make_live


def _make_newest(path: Path, newer: dict[int, Path]) -> Path:
    """Shows a version and sets newer ones aside, the newest last, so that no other is loaded."""
    try:
        if not path.name.isdecimal():
            path = show(path)
        for number in sorted(newer):
            hide(newer[number])
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as err:
        kind = PermissionDeniedError if isinstance(err, PermissionError) else HotrowError
        raise kind(f"versions in {path.parent} cannot be renamed: {err.strerror}") from err
    return path


def _wait_until_left(
    left: list[Manifest], stores: _Stores, seconds: float, report: Callable[[str], None]
) -> list[Reader]:
    """Waits until no server reads these versions; returns those that do after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        behind = []
        for manifest in left:
            records = stores.open(manifest.store).records
            there = readers(records, manifest.generation)
            behind += [reader for reader in there if reader.follows_cuts]
        if not behind or time.monotonic() >= end:
            return behind
        report(f"waiting for {len(behind)} servers to leave the versions set aside")
        time.sleep(_LOOK_SECONDS)


def roll_back_cuts(
    path: Path,
    to: int,
    access: StoreAccess | None = None,
    *,
    store: str | None = None,
    wait_seconds: float,
    report: Callable[[str], None] = lambda line: None,
    committed: Callable[[CutRecord], None] = lambda cut: None,
    ask_trainer: Callable[[str, str], str] | None = None,
) -> Outcome:
    """Brings back a version's state before newer incremental exports, as a new cut.

    While a trainer publishes the model by itself, only that trainer can do this: it holds the
    model's export lock for its whole life.

    Args:
        path: the version.
        to: version of a cut, or that of the rows as exported.
        access: credentials for the store.
        store: another URL of the version's store; None: the one in its manifest.
        wait_seconds: how long to wait until all servers have taken it.
        report: called with lines of progress.
        committed: called with the new cut once servers can read it.
        ask_trainer: asks the trainer at an address, which the export lock names, to go back to a
            cut; returns the new cut. None: a trainer is an error.

    Raises:
        NotFoundError: the version has no shared rows, or what newer cuts replaced is not kept.
        FailedPreconditionError: servers show that state already, the store has lost what they
            show, or an export is running.
        DataLossError: the version or its rows are damaged.
        UnavailableError, ResourceExhaustedError: the store does not answer, or is full.
    """
    manifest = _shared_rows(path)
    if manifest is None:
        raise NotFoundError(
            f"{path} has no rows in a shared store, so it has no incremental exports; --to takes "
            "a version"
        )
    published = PublishedLog.beside(path, manifest.generation)

    def publish(cut: CutRecord) -> None:
        published.append(cut)
        committed(cut)

    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(
            contextlib.closing(open_store(store or manifest.store, access))
        )
        trainer = exporter_of(opened.records, manifest.model)
        if ask_trainer and trainer and trainer.admin and not has_ended(trainer.process):
            generation = Generations(opened.records).get(manifest.generation)
            cut = _cut_of(opened, generation, ask_trainer(trainer.admin, f"{to:016x}"))
            committed(cut)
            behind = wait_until_taken(opened, generation, cut, wait_seconds, report)
            return Outcome(cut, True, tuple(r for r in behind if r.follows_cuts))
        lock = stack.enter_context(lock_exports(opened.records, manifest.model))
        return roll_back_to_cut(
            opened,
            Generations(opened.records).get(manifest.generation),
            lock,
            to,
            published=published,
            exported_dense=lambda: exported_dense(path),
            wait_seconds=wait_seconds,
            report=report,
            committed=publish,
        )


def _cut_of(store: RowStore, generation: Generation, name: str) -> CutRecord:
    """Returns the cut that a trainer has published."""
    for cut in cuts_of(store.records, generation):
        if f"{cut.version:016x}" == name:
            return cut
    raise DataLossError(
        f"{store.url} has no cut {name}, which the trainer has just published: it publishes to "
        "another store, or the store has lost it; `platform status` shows both"
    )


def exported_dense(path: Path) -> bytes:
    """Returns the dense weights of a version's SavedModel in the form of a cut."""
    prefix = path / "variables" / PREFIX
    try:
        return pack(prefix) if prefix.with_name(f"{PREFIX}.index").exists() else b""
    except OSError as err:
        raise DataLossError(f"{prefix} cannot be read: {err.strerror}") from err
