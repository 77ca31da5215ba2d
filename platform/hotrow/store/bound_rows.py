"""The rows of an exported version as native lookups read them: leased, their nodes known."""

from __future__ import annotations

import json
import os
import socket
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.store.access import StoreAccess
from hotrow.store.generations import Generations
from hotrow.store.leases import ReaderLease, use
from hotrow.store.opening import open_store
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation, State
from hotrow.store.url import StoreKind, parse_store_url

if TYPE_CHECKING:
    from hotrow.store.redis.tls_relay import TlsRelay

_LEASE_SECONDS = 30.0
# Who closes does not want to wait for a store that is gone; a load that fails is tried again.
_PATIENCE_SECONDS = 5.0


class RowsPlace(TypedDict, total=False):
    """Where native lookups find rows; see `hr_serving_options`. Empty: in files."""

    generation: str
    topology: str
    username: str
    password: str
    database: int


class BoundRows:
    """A generation in an open store, which is not deleted until this is closed.

    Args:
        url: of the store.
        generation: its name.
        access: how the store lets us in.
        folder: private; sockets of native readers are made in it. None: that of temporary files.
        option: what the user wrote the URL behind, for messages.
        follows_cuts: whether the reader takes newer cuts, so that exporters wait for it.

    Raises:
        NotFoundError, DataLossError, FailedPreconditionError: the store does not have the rows.
        UnavailableError, PermissionDeniedError: it does not answer, or does not let us in.
    """

    def __init__(
        self,
        url: str,
        generation: str,
        access: StoreAccess,
        folder: Path | None = None,
        option: str = "--store",
        follows_cuts: bool = True,
    ) -> None:
        self._follows_cuts = follows_cuts
        self._url = parse_store_url(option, url)
        self._access = access
        self._relay: TlsRelay | None = None
        self._lease: ReaderLease | None = None
        self._store = open_store(url, access, option=option, patience_seconds=_PATIENCE_SECONDS)
        try:
            # Before the state is looked at: deletion changes it before it looks for leases.
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
            if self._url.tls:
                from hotrow.store.redis.tls_relay import TlsRelay

                self._relay = TlsRelay(access, folder)
        except BaseException:
            self.close()
            raise

    def _leased(self, generation: str) -> ReaderLease | None:
        """Returns a lease; None where files can only be read: nobody deletes there."""
        holder = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        try:
            return use(self._store.records, generation, holder, _LEASE_SECONDS, self._follows_cuts)
        except FailedPreconditionError:
            if self.has_nodes:
                raise
            return None

    @property
    def store(self) -> RowStore:
        """Where the rows are; open as long as this is."""
        return self._store

    @property
    def generation(self) -> Generation:
        """The rows."""
        return self._generation

    def note_cut(self, version: int) -> None:
        """Notes in the lease that its holder answers by a cut, and by none before it any more.

        Raises:
            FailedPreconditionError: the lease was lost, and the generation with it.
            HotrowError: the store does not answer.
        """
        if self._lease is not None:
            self._lease.note_cut(version)

    @property
    def has_nodes(self) -> bool:
        """Whether it is read from nodes, not from files."""
        return self._url.kind is not StoreKind.FILE

    def topology(self) -> str:
        """Returns which nodes the store has now, as native readers take it.

        Raises:
            HotrowError: nobody answers.
        """
        topology = self._store.topology()
        if self._relay is not None:
            topology["relay"] = f"unix:{self._relay.path}"
        return json.dumps(topology, sort_keys=True)

    def place(self) -> RowsPlace:
        """Returns what native lookups need to find the rows.

        Raises:
            HotrowError: nobody answers.
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
        """Gives the lease and the store back, and ends the relay of its readers."""
        if self._lease is not None:
            self._lease.release()
        if self._relay is not None:
            self._relay.close()
        self._store.close()
