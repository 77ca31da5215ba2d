"""The rows of a loaded version in a store: their generation, a lease on it, the nodes."""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from hotrow.errors import DataLossError, FailedPreconditionError, HotrowError, UnavailableError
from hotrow.manifest import Manifest, read_manifest
from hotrow.protos import control_pb2
from hotrow.serving.row_options import RowOptions
from hotrow.store.url import StoreKind, parse_store_url

# Between two looks at which nodes a store has.
_LOOK_SECONDS = 1.0
_LEASE_SECONDS = 30.0
_OF_FILES = "file:"


class VersionRows:
    """What the data plane needs to read the rows of a version, until it is closed.

    Args:
        manifest: path of the version's; "" for a version without tables.
        options: how rows are read.
        before: how an executable that was found reads them; they stay like that while the store
            does not answer.
        log: takes a line for each change an operator cares for.

    Raises:
        NotFoundError, DataLossError: the store does not have the rows.
        UnavailableError, PermissionDeniedError: it does not answer, or does not let us in.
    """

    def __init__(
        self,
        manifest: str,
        options: RowOptions,
        before: control_pb2.Rows | None,
        log: Callable[[str], None],
    ) -> None:
        self.message = control_pb2.Rows(
            timeout_millis=options.timeout_ms,
            default_on_failure=options.on_failure == "default",
            cache_rows=options.cache_rows,
            cache_bytes=options.cache_bytes,
            cache_lru=options.cache_policy == "lru",
        )
        self._options = options
        self._log = log
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._open: _OpenRows | None = None
        if not manifest:
            return
        self._manifest = read_manifest(Path(manifest))
        url = options.store or self._manifest.store
        if not url or (url.startswith(_OF_FILES) and not url.startswith("file://")):
            return  # the version's own, which nobody deletes
        self._store_url = url
        try:
            self._open = _OpenRows(url, self._manifest, options)
        except UnavailableError:
            if before is None:
                raise
            self.message.CopyFrom(before)
            log(f"{url} does not answer; rows go on as before until it does")
            return
        self._open.describe(self.message)

    def watch(self, set_topology: Callable[[str], None]) -> None:
        """Calls `set_topology` from now on whenever the nodes of the store are others."""
        if self._open is None and not self.message.topology:
            return
        if self._open is not None and not self._open.has_nodes:
            return
        self._thread = threading.Thread(
            target=self._watch, args=[set_topology], name="store-nodes", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Gives the lease and the store back."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        if self._open is not None:
            self._open.close()

    def _watch(self, set_topology: Callable[[str], None]) -> None:
        known = self.message.topology
        while not self._closed.wait(_LOOK_SECONDS):
            try:
                if self._open is None:
                    self._open = _OpenRows(self._store_url, self._manifest, self._options)
                now = self._open.topology()
                if now == known:
                    continue
                set_topology(now)
            except HotrowError:
                continue  # the data plane goes on with the nodes that it knows
            known = now
            self._log(f"{self._store_url}: the nodes of the store have changed")


class _OpenRows:
    """A generation in an open store, with a lease."""

    def __init__(self, url: str, manifest: Manifest, options: RowOptions) -> None:
        # Not before: a server without such a store does without its libraries.
        from hotrow.store import open_store
        from hotrow.store.generations import Generations
        from hotrow.store.leases import use
        from hotrow.store.spec import State

        self._url = parse_store_url("--store", url)
        self._access = options.access
        self._store = open_store(url, options.access)
        try:
            self._generation = Generations(self._store.records).get(manifest.generation)
            if self._generation.state is not State.COMPLETE:
                raise FailedPreconditionError(
                    f"{url}: generation {manifest.generation} is {self._generation.state}, not "
                    "complete; export again"
                )
            missing = self._store.missing_markers(self._generation)
            if missing:
                raise DataLossError(
                    f"{url}: generation {manifest.generation} has lost {len(missing)} of "
                    f"{self._generation.shards} shards; export again"
                )
            holder = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            self._lease = use(
                self._store.records, manifest.generation, holder, seconds=_LEASE_SECONDS
            )
        except BaseException:
            self._store.close()
            raise

    @property
    def has_nodes(self) -> bool:
        """Whether it is read from nodes, not from files."""
        return self._url.kind is not StoreKind.FILE

    def topology(self) -> str:
        """Returns which nodes the store has now, as the data plane takes it."""
        return json.dumps(self._store.topology(), sort_keys=True)

    def describe(self, message: control_pb2.Rows) -> None:
        """Adds what the data plane needs to find the rows."""
        if not self.has_nodes:
            return
        message.generation = self._generation.model_dump_json()
        message.topology = self.topology()
        message.username = self._access.username or self._url.username
        message.password = self._access.password
        message.database = self._url.database

    def close(self) -> None:
        """Gives the lease and the store back."""
        self._lease.release()
        self._store.close()
