"""Batch scoring in Python: the rows of an exported version, wherever they are (`hotrow.bind`)."""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import tensorflow as tf

from hotrow import _native
from hotrow.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    nearest,
)
from hotrow.manifest import read_manifest
from hotrow.ops import library
from hotrow.ops.bound_cut import BoundCut, show_newest_cut
from hotrow.store.access import StoreAccess, read_access
from hotrow.store.bound_rows import BoundRows, RowsPlace
from hotrow.store.topology_watch import TopologyWatch
from hotrow.store.url import parse_store_url
from hotrow.version_layout import FILE_NAME

# Batch scoring may use large batches, and it has no latency target as a request has.
_TIMEOUT_MS = 10_000
# Bound manifests; the core keeps one binding for each.
_bound: set[Path] = set()


class Binding:
    """The rows of a version for lookups in this process, until `close`; see `bind`."""

    def __init__(
        self,
        manifest: Path,
        url: str,
        generation: str,
        access: StoreAccess,
        options: dict[str, int | bool],
    ) -> None:
        self._manifest = manifest
        self._rows: BoundRows | None = None
        self._watch: TopologyWatch | None = None
        self._cut: BoundCut | None = None
        self._closed = False
        if manifest in _bound:
            raise AlreadyExistsError(
                f"{manifest.parent.parent} is bound already in this process; close the other "
                "binding first"
            )
        _bound.add(manifest)
        try:
            place: RowsPlace = {}
            if "://" in url:  # an embedded store; no process deletes it
                self._rows = BoundRows(url, generation, access, option="store", follows_cuts=False)
                place = self._rows.place()
            _native.attach_serving(str(manifest), store=url, **options, **place)
            if self._rows is not None and self._rows.has_nodes:
                self._watch = TopologyWatch(self._rows.topology, self._notify, place["topology"])
        except BaseException:
            self.close()
            raise
        # At exit the interpreter releases the lease.
        atexit.register(self.close)

    def load(self) -> Any:
        """Returns the model of `tf.saved_model.load`, with the results that servers return now.

        It has the rows and the dense weights of the newest incremental export, if there is one. The
        first call selects that export; the store keeps it until the binding is closed.

        Raises:
            FailedPreconditionError: the binding is closed, or an export has overruled it.
            DataLossError: the store has lost parts of the export.
            UnavailableError: the store does not answer.
        """
        if self._closed:
            raise FailedPreconditionError(
                f"the binding of {self._manifest.parent.parent} is closed; bind it again"
            )
        if self._rows is not None:
            self._rows.check_not_overruled()
        if self._cut is None:
            bound = self._rows
            self._cut = BoundCut() if bound is None else show_newest_cut(self._manifest, bound)
        loaded = tf.saved_model.load(str(self._manifest.parent.parent))
        self._cut.assign_to(loaded)
        return loaded

    @property
    def step(self) -> int | None:
        """Training step of the incremental export that `load` selected; None: as exported."""
        return None if self._cut is None else self._cut.step

    def close(self) -> None:
        """Detaches the rows; idempotent.

        Later lookups read the store that the manifest names; they fail if that store is not in
        files.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        if self._watch is not None:
            self._watch.close()
        _native.detach_serving(str(self._manifest))
        if self._rows is not None:
            self._rows.close()
        _bound.discard(self._manifest)

    def _notify(self, topology: str) -> None:
        _native.set_attached_topology(str(self._manifest), topology)

    def __enter__(self) -> Binding:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def bind(
    model_dir: str | Path,
    store: str | None = None,
    *,
    access: StoreAccess | None = None,
    timeout_ms: int = _TIMEOUT_MS,
    on_failure: Literal["fail", "default"] = "fail",
    cache_rows: int = 0,
    cache_bytes: int = 0,
    cache_policy: Literal["lfu", "lru"] = "lfu",
) -> Binding:
    """Opens the rows of an exported version for scoring in this process.

    The rows are in files or in Redis, whose nodes may change meanwhile. The store keeps the
    generation until the binding is closed. `bind` also loads Hotrow's ops.

    Call `load()` on the result to load the model with the newest incremental export. A model that
    `tf.saved_model.load` loaded has the dense weights of the full export, so it fails when it reads
    rows of a later export. After `load()`, all lookups of the version in this process read the
    newest rows. Close the result, or use it in a `with` statement.

    A binding keeps later incremental exports from replacing rows. An export overrules one that does
    so for longer or with more bytes than it allows (`export.max_hold_seconds`, 4 hours, and
    `export.max_hold_bytes`, 1 GiB). Then calls of the model that need a replaced row raise
    `tf.errors.FailedPreconditionError`, and so does `load()`, with Hotrow's class: bind again.

    Args:
        model_dir: the version directory, for example `models/shop/1`.
        store: URL of a store to use instead of the one in the version's manifest.
        access: credentials for the store; None: only the password in HOTROW_STORE_PASSWORD, if it
            is set.
        timeout_ms: longest time to read rows in one lookup of the model, in milliseconds.
        on_failure: what to do when rows cannot be read in time. "fail": raise
            `tf.errors.UnavailableError`. "default": score with default rows.
        cache_rows: hot rows to keep in memory; 0: none.
        cache_bytes: the same bound in bytes; give at most one of the two.
        cache_policy: the eviction policy: "lfu", the least frequently used row (counts decay over
            time), or "lru", the least recently used row.

    Raises:
        NotFoundError: the directory has no version with a store, or the store lacks its rows.
        InvalidArgumentError: an argument is not legal.
        AlreadyExistsError: this process has bound the version already.
        FailedPreconditionError: the store's rows are of another kind, or not complete.
        UnavailableError: the store does not answer.
        PermissionDeniedError: the store refuses the credentials.
        DataLossError: the store has lost rows.
    """
    if timeout_ms < 1:
        raise InvalidArgumentError(f"timeout_ms {timeout_ms}: must be 1 or more milliseconds")
    _check_choice("on_failure", on_failure, ("fail", "default"))
    _check_choice("cache_policy", cache_policy, ("lfu", "lru"))
    for name, value in (("cache_rows", cache_rows), ("cache_bytes", cache_bytes)):
        if value < 0:
            raise InvalidArgumentError(f"{name} {value}: must be 0 (no cache) or more")
    if cache_rows and cache_bytes:
        raise InvalidArgumentError("cache_rows with cache_bytes: give one of the two")
    if store is not None:
        parse_store_url("store", store)
    # The core writes paths in this form; two spellings of a path are one version.
    manifest = Path(os.path.abspath(model_dir), "assets", FILE_NAME)
    if not manifest.is_file():
        raise NotFoundError(
            f"{model_dir} has no assets/{FILE_NAME}: give the directory of a version, "
            "models/NAME/VERSION; a standalone one has its rows in its graph and needs no bind"
        )
    found = read_manifest(manifest)
    library.load()
    return Binding(
        manifest,
        store or found.store,
        found.generation,
        access or read_access(),
        {
            "timeout_millis": timeout_ms,
            "default_on_failure": on_failure == "default",
            "cache_rows": cache_rows,
            "cache_bytes": cache_bytes,
            "cache_lru": cache_policy == "lru",
        },
    )


def _check_choice(name: str, value: str, legal: tuple[str, ...]) -> None:
    if value not in legal:
        raise InvalidArgumentError(
            f"{name} {value!r}{nearest(value, legal)}; legal: {', '.join(legal)}"
        )
