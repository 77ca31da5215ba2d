"""How a server reads the rows of our exports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hotrow.errors import InvalidArgumentError, PermissionDeniedError
from hotrow.store.access import StoreAccess
from hotrow.store.url import parse_store_url

OnStoreFailure = Literal["fail", "default"]
CachePolicy = Literal["lfu", "lru"]


@dataclass(frozen=True)
class RowOptions:
    """How rows are read.

    Attributes:
        store: URL of the store; "" means the one in the version's manifest.
        access: how to authenticate to it.
        hosts: hosts of the stores that a manifest may name, as "HOST[:PORT],..."; "": any.
        timeout_ms: limit for all reads of one request together.
        max_reads: reads of the store that a version has under way at a time, each with a connection
            to each node that it needs. Further ones wait if they can still end in time, and fail
            at once otherwise.
        on_failure: what a request gets when rows cannot be read in time: "fail" (UNAVAILABLE) or
            "default" rows.
        cache_rows: rows that each version keeps in memory, the hot ones; 0: no cache.
        cache_bytes: the same bound in bytes; 0: none. At most one of the two is given.
        cache_policy: the eviction policy: "lfu", the least frequently used row (counts decay over
            time), or "lru", the row not used for longest.
        warm_up_rows_per_second: rows that a version reads from a store on the network to fill its
            cache before it serves, a second. Each begins at a random moment.
    """

    store: str = ""
    access: StoreAccess = field(default_factory=StoreAccess)
    hosts: str = ""
    timeout_ms: int = 100
    max_reads: int = 32
    on_failure: OnStoreFailure = "fail"
    cache_rows: int = 0
    cache_bytes: int = 0
    cache_policy: CachePolicy = "lfu"
    warm_up_rows_per_second: int = 50_000

    def __post_init__(self) -> None:
        """Refuses illegal values."""
        if self.store:
            parse_store_url("--store", self.store)
        if self.timeout_ms < 1:
            raise InvalidArgumentError(
                f"--store_timeout_ms {self.timeout_ms}: must be 1 or more milliseconds"
            )
        if self.max_reads < 1:
            raise InvalidArgumentError(f"--store_max_reads {self.max_reads}: must be 1 or more")
        if self.warm_up_rows_per_second < 1:
            raise InvalidArgumentError(
                f"--cache_warm_up_rows_per_second {self.warm_up_rows_per_second}: must be 1 or more"
            )
        for name in ("cache_rows", "cache_bytes"):
            if getattr(self, name) < 0:
                raise InvalidArgumentError(
                    f"--{name} {getattr(self, name)}: must be 0 (no cache) or more"
                )
        if self.cache_rows and self.cache_bytes:
            raise InvalidArgumentError("--cache_rows with --cache_bytes: give one of the two")

    def check_named(self, url: str, manifest: str) -> None:
        """Refuses a store that a manifest names, if it must not get the credentials.

        Whoever can write a version directory can name any host; it would be sent the password.

        Args:
            url: URL of the store.
            manifest: path of the manifest, for messages.

        Raises:
            PermissionDeniedError: its hosts are not among `hosts`, or it has no TLS though files
                for TLS are given.
        """
        store = parse_store_url("store", url)
        allowed = {name.strip() for name in self.hosts.split(",") if name.strip()}
        for host, port in store.hosts:
            if allowed and not {host, f"{host}:{port}"} & allowed:
                raise PermissionDeniedError(
                    f"{manifest} names the store {url}, and {host}:{port} is not in --store_hosts "
                    f"{self.hosts}; add it there, or give the store by --store"
                )
        if store.hosts and not store.tls and (self.access.ca_file or self.access.cert_file):
            raise PermissionDeniedError(
                f"{manifest} names the store {url}, which is without TLS, but --store_ca or "
                "--store_cert is given; give the store by --store if that is meant"
            )
