"""How a server reads the rows of our exports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hotrow.errors import InvalidArgumentError
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
    """

    store: str = ""
    access: StoreAccess = field(default_factory=StoreAccess)
    timeout_ms: int = 100
    max_reads: int = 32
    on_failure: OnStoreFailure = "fail"
    cache_rows: int = 0
    cache_bytes: int = 0
    cache_policy: CachePolicy = "lfu"

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
        for name in ("cache_rows", "cache_bytes"):
            if getattr(self, name) < 0:
                raise InvalidArgumentError(
                    f"--{name} {getattr(self, name)}: must be 0 (no cache) or more"
                )
        if self.cache_rows and self.cache_bytes:
            raise InvalidArgumentError("--cache_rows with --cache_bytes: give one of the two")
