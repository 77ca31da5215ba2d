"""The rows of a loaded version in a store, as the data plane receives them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hotrow.errors import UnavailableError
from hotrow.manifest import read_manifest
from hotrow.protos import control_pb2
from hotrow.serving.config.row_options import RowOptions
from hotrow.store.topology_watch import TopologyWatch

if TYPE_CHECKING:
    from hotrow.store.bound_rows import BoundRows

_LOG = logging.getLogger(__name__)

_OF_FILES = "file:"
# The fields of control_pb2.Rows that say where rows are.
_PLACE = ("generation", "topology", "username", "password", "database")


class VersionRows:
    """The data that the data plane needs to read a version's rows, until it is closed.

    Args:
        model: its name.
        manifest: path of the version's manifest; "" for a version without tables.
        options: how rows are read.
        before: how an executable taken over reads them; that stays while the store does not
            answer.

    Raises:
        NotFoundError, DataLossError: the store does not have the rows.
        UnavailableError, PermissionDeniedError: it does not answer, or refuses our credentials.
    """

    def __init__(
        self,
        model: str,
        manifest: str,
        options: RowOptions,
        before: control_pb2.Rows | None,
    ) -> None:
        self.message = control_pb2.Rows(
            timeout_millis=options.timeout_ms,
            default_on_failure=options.on_failure == "default",
            cache_rows=options.cache_rows,
            cache_bytes=options.cache_bytes,
            cache_lru=options.cache_policy == "lru",
            max_reads=options.max_reads,
            warm_up_rows_per_second=options.warm_up_rows_per_second,
        )
        if options.gpu is not None:
            self.message.gpu = options.gpu
            self.message.gpu_cache_bytes = options.gpu_cache_bytes or options.cache_bytes
            self.message.gpu_if_faster = options.cache_device == "auto"
        self._model = model
        self._options = options
        self._before = before
        self._watch: TopologyWatch | None = None
        self._bound: BoundRows | None = None
        self._binding = threading.Lock()
        self._store_url = ""
        if not manifest:
            return
        found = read_manifest(Path(manifest))
        url = options.store or found.store
        if not url or (url.startswith(_OF_FILES) and not url.startswith("file://")):
            return  # the version's own, which no export deletes
        if not options.store:
            options.check_named(url, manifest)
        self._store_url = url
        self._generation = found.generation
        try:
            self._bound = self._bind()
        except UnavailableError:
            if before is None:
                raise
            for name in _PLACE:
                setattr(self.message, name, getattr(before, name))
            _LOG.warning(f"{url} does not answer; rows go on as before until it does")
            return
        try:
            place = self._bound.place()
        except BaseException:
            self._bound.close()
            raise
        for name, value in place.items():
            setattr(self.message, name, value)

    @property
    def are_shared(self) -> bool:
        """Whether the rows are in a shared store, where cuts may change them."""
        return bool(self._store_url)

    def bound(self) -> BoundRows:
        """Returns the shared rows; binds them if they are not bound yet.

        Raises:
            HotrowError: the store does not answer now, or does not have them.
        """
        with self._binding:
            if self._bound is None:
                self._bound = self._bind()
            return self._bound

    def watch(self, set_topology: Callable[[str], None]) -> None:
        """Calls `set_topology` from now on whenever the nodes of the store change."""
        known = self.message.topology
        if not known:
            return
        if self._before is not None and self._before.topology != known:
            set_topology(known)

        def notify(topology: str) -> None:
            set_topology(topology)
            _LOG.info(f"{self._store_url}: the nodes of the store have changed")

        self._watch = TopologyWatch(lambda: self.bound().topology(), notify, known)

    def close(self) -> None:
        """Releases the lease and closes the store."""
        try:
            if self._watch is not None:
                self._watch.close()
        finally:
            if self._bound is not None:
                self._bound.close()

    def _bind(self) -> BoundRows:
        # Imported only here: a server without such a store does not need its libraries.
        from hotrow.store.bound_rows import BoundRows

        options = self._options
        return BoundRows(
            self._store_url,
            self._generation,
            options.access,
            metrics_url=options.metrics_url,
            server=options.server and f"{options.server}/{self._model}",
        )
