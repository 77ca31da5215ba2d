"""An exported version's rows for native lookups: holds a lease and the store's topology."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import uuid
from typing import TypedDict

from hotrow.errors import DataLossError, FailedPreconditionError, UnavailableError
from hotrow.store.access import StoreAccess
from hotrow.store.generations import Generations
from hotrow.store.opening import open_store
from hotrow.store.own_host import own_host
from hotrow.store.readers import ReaderLease, use
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation, State
from hotrow.store.url import StoreKind, parse_store_url

_LEASE_SECONDS = 30.0
# A close should not wait for a store that is down; a failed load is tried again.
_PATIENCE_SECONDS = 5.0


class RowsPlace(TypedDict, total=False):
    """Where native lookups find rows; see `hr_serving_options`. Empty: in files."""

    generation: str
    topology: str
    username: str
    password: str
    database: int


class BoundRows:
    """A generation in an open store, which is not deleted until this object is closed.

    Args:
        url: URL of the store.
        generation: its name.
        access: credentials for the store.
        option: the option that had the URL, for messages.
        follows_cuts: whether the reader takes newer cuts, so that exporters wait for it.
        metrics_url: URL of the reader's page of metrics, for the lease; `{host}` in it becomes this
            machine's address. "": there is none.
        server: a name that only processes have which read these rows for the same server one after
            the other. The lease of a process that was killed ends once the next one has noted a
            cut. "": none.

    Raises:
        NotFoundError, DataLossError, FailedPreconditionError: the store does not have the rows.
        UnavailableError, PermissionDeniedError: the store does not answer, or refuses access.
    """

    def __init__(
        self,
        url: str,
        generation: str,
        access: StoreAccess,
        option: str = "--store",
        follows_cuts: bool = True,
        metrics_url: str = "",
        server: str = "",
    ) -> None:
        self._server = server
        self._has_noted = False
        self._follows_cuts = follows_cuts
        self._url = parse_store_url(option, url)
        self._access = access
        self._metrics_url = metrics_url
        self._lease: ReaderLease | None = None
        self._store = open_store(url, access, option=option, patience_seconds=_PATIENCE_SECONDS)
        try:
            # Take the lease before reading the state: deletion changes the state, then looks for
            # leases.
            self._lease = self._leased(generation)
            self._generation = Generations(self._store.records).get(generation)
            if self._generation.state is not State.COMPLETE:
                raise FailedPreconditionError(
                    f"{url}: generation {generation} is {self._generation.state}, not "
                    "complete; export again"
                )
            missing = self._store.missing_markers(self._generation)
            if missing:
                raise DataLossError(
                    f"{url}: generation {generation} has lost {len(missing)} of "
                    f"{self._generation.shards} shards; export again"
                )
        except BaseException:
            self.close()
            raise

    def _leased(self, generation: str) -> ReaderLease | None:
        """Returns a lease; None if files are read-only: no process can delete them then."""
        holder = f"{_this_process()}{uuid.uuid4().hex[:8]}"
        metrics_url = self._metrics_url.replace("{host}", own_host(self._url))
        records, follows = self._store.records, self._follows_cuts
        try:
            return use(
                records, generation, holder, _LEASE_SECONDS, follows, metrics_url, self._server
            )
        except FailedPreconditionError:
            if self.has_nodes:
                raise
            return None

    @property
    def store(self) -> RowStore:
        """The store of the rows; open as long as this object."""
        return self._store

    @property
    def generation(self) -> Generation:
        """The rows."""
        return self._generation

    def note_cut(
        self, version: int, *, identity: str = "", step: int = 0, lineage: str = ""
    ) -> None:
        """Records in the lease that its holder answers by a cut, and no longer by earlier ones.

        Raises:
            FailedPreconditionError: the lease was lost, and the generation with it.
            HotrowError: the store does not answer.
        """
        if self._lease is None:
            return
        self._lease.note_cut(version, identity=identity, step=step, lineage=lineage)
        if not self._has_noted:  # until now the former lease has said what is shown
            self._lease.release_former(_this_process())
            self._has_noted = True

    def check_not_overruled(self) -> None:
        """Raises an error when an exporter has replaced rows that this reader needs.

        Raises:
            FailedPreconditionError: it was overruled; while the store does not answer, as of the
                last renewal of its lease.
        """
        if self._lease is not None:
            with contextlib.suppress(UnavailableError):
                self._lease.look()
            self._lease.check_not_overruled()

    def count_overruled(self) -> int:
        """Returns how often more an exporter has overruled this reader since the last call."""
        return 0 if self._lease is None else self._lease.count_overruled()

    @property
    def has_nodes(self) -> bool:
        """Whether the rows are read from nodes, not from files."""
        return self._url.kind is not StoreKind.FILE

    def topology(self) -> str:
        """Returns the store's current nodes, in the form of native readers.

        Raises:
            HotrowError: no node answers.
        """
        topology = self._store.topology()
        if self._url.tls:
            access = self._access
            files = {"ca": access.ca_file, "cert": access.cert_file, "key": access.key_file}
            topology["tls"] = {name: file and os.path.abspath(file) for name, file in files.items()}
        return json.dumps(topology, sort_keys=True)

    def place(self) -> RowsPlace:
        """Returns the options that native lookups need to find the rows.

        Raises:
            HotrowError: no node answers.
        """
        if not self.has_nodes:
            return {}
        return {
            "generation": self._generation.model_dump_json(),
            "topology": self.topology(),
            "username": self._access.username or self._url.username,
            "password": self._access.password,
            "database": self._url.database,
        }

    def close(self) -> None:
        """Releases the lease and closes the store."""
        if self._lease is not None:
            self._lease.release()
        self._store.close()


def _this_process() -> str:
    """Returns the beginning of the names of all holders in this process."""
    return f"{socket.gethostname()}-{os.getpid()}-"
