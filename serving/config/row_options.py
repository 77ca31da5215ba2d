"""How a server reads the rows of our exports."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from hotrow.errors import InvalidArgumentError, PermissionDeniedError
from hotrow.store.access import StoreAccess
from hotrow.store.url import parse_store_url

OnStoreFailure = Literal["fail", "default"]
CachePolicy = Literal["lfu", "lru"]

_GPU = re.compile(r"gpu(?::(\d{1,4}))?")


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
        cache_device: where hot rows are, over those in memory: "cpu" (nowhere else), "gpu" or
            "gpu:N" (in that GPU's memory, for all requests), or "auto" (on GPU 0 if there is one,
            and for requests that are large enough to gain from it).
        gpu_cache_bytes: of the GPU's memory that each version takes for them; 0: cache_bytes.
        warm_up_rows_per_second: rows that a version reads from a store on the network to fill its
            cache before it serves, a second. Each begins at a random moment.
        metrics_url: of this server's page of metrics, which leases name; see `BoundRows`.
        server: a name of this server that no other has, which leases have; "": none.
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
    cache_device: str = "cpu"
    gpu_cache_bytes: int = 0
    warm_up_rows_per_second: int = 50_000
    metrics_url: str = ""
    server: str = ""

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
        for name in ("cache_rows", "cache_bytes", "gpu_cache_bytes"):
            if getattr(self, name) < 0:
                raise InvalidArgumentError(
                    f"--{name} {getattr(self, name)}: must be 0 (no cache) or more"
                )
        if self.cache_rows and self.cache_bytes:
            raise InvalidArgumentError("--cache_rows with --cache_bytes: give one of the two")
        self._check_device()

    def _check_device(self) -> None:
        if self.cache_device == "cpu":
            if self.gpu_cache_bytes:
                raise InvalidArgumentError(
                    f"--gpu_cache_bytes {self.gpu_cache_bytes} without --cache_device=gpu or auto"
                )
            return
        if self.cache_device != "auto" and not _GPU.fullmatch(self.cache_device):
            raise InvalidArgumentError(
                f"--cache_device {self.cache_device}; legal: cpu, gpu, gpu:N, auto"
            )
        if not self.cache_rows and not self.cache_bytes:
            raise InvalidArgumentError(
                f"--cache_device={self.cache_device} without --cache_bytes or --cache_rows: rows "
                "on a GPU come from those in memory"
            )
        if not self.cache_bytes and not self.gpu_cache_bytes:
            raise InvalidArgumentError(
                f"--cache_device={self.cache_device} with --cache_rows needs --gpu_cache_bytes, "
                "the bound of the GPU's memory"
            )

    @property
    def gpu(self) -> int | None:
        """CUDA's number of the GPU that has hot rows; None: no GPU."""
        if self.cache_device == "cpu":
            return None
        found = _GPU.fullmatch(self.cache_device)
        return int(found[1] or 0) if found else 0

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
