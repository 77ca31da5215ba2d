"""The contract of a store: what LMDB and Redis give, and everything else is written over.

V virtual shards, N rows, B bytes of a stored row (docs/formats.md, "Stored rows").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hotrow.store.spec import Generation
from hotrow.store.statistics import StoreStatistics

Keys = NDArray[np.int64]
Rows = NDArray[np.uint8]
Versions = NDArray[np.uint64]
States = NDArray[np.uint8]
"""Of keys: 0 unknown (also a tombstone), 1 found, 2 failed."""
ShardDigests = NDArray[np.uint64]
"""uint64 [V, 3]: rows, and the two sums of their digest, of each virtual shard."""

DAMAGED_ROWS = (1 << 64) - 1
"""The number of rows in the digest of a shard with damaged pages: like no other."""


Change = tuple[str, str | None, str | None]
"""Of a control record: its name, the text that it should have, the new one; None: absent."""
Place = tuple[int, int]
"""Of a staged block: the virtual shard in whose slot it lies, and its number there, below 2^31."""


class Records(Protocol):
    """Control records: small texts by name, changed by compare-and-set.

    All methods raise UnavailableError when the store does not answer.
    """

    def get(self, name: str) -> str | None:
        """Returns the text of a record; None: there is none."""

    def swap(self, name: str, expected: str | None, text: str | None) -> bool:
        """Writes a record if it is as expected (None: absent); `text` None removes it.

        Returns:
            Whether it was as expected; else nothing was changed.
        """

    def swap_all(self, changes: Sequence[Change]) -> bool:
        """Does the same with several records at once: all of them, or none.

        Args:
            changes: (name, expected, text) of each; no name twice.
        """

    def names(self, prefix: str) -> list[str]:
        """Returns the names that begin with `prefix`, sorted."""

    def next_number(self) -> int:
        """Returns a number, 1 or more, that this store never returned before; they ascend."""

    def now_ms(self) -> int:
        """Returns the store's clock, in milliseconds; all its clients see the same one."""


class RowStore(Protocol):
    """A place where generations lie."""

    @property
    def url(self) -> str:
        """Of the store, without a password."""

    @property
    def records(self) -> Records:
        """Its control records."""

    def close(self) -> None:
        """Gives connections and files back."""

    def topology(self) -> dict[str, Any]:
        """Returns which node holds what, as JSON types for the native reader of Redis.

        `{"cluster": bool, "nodes": [{"address": "host:port" or "unix:/path", "slots":
        [[first, last], ...]}, ...]}`; an embedded store has no nodes.
        """

    def statistics(self, generation: Generation) -> StoreStatistics | None:
        """Returns the memory that a generation takes; None: the store does not say."""

    def check_safe_for_rows(self) -> None:
        """Checks that the store never drops a row by itself.

        Raises:
            FailedPreconditionError: it may (`maxmemory-policy` of Redis).
        """

    def pages_of(self, record_bytes: int, rows: int, shards: int) -> int:
        """Returns P for a table of so many rows of so many bytes; 0: the store has no pages."""

    def begin(self, generation: Generation) -> None:
        """Prepares a generation for its first rows; idempotent. Its record was written."""

    def write(
        self,
        generation: Generation,
        table: int,
        keys: Keys,
        rows: Rows,
        shards: Collection[int] | None = None,
    ) -> None:
        """Writes rows of a generation that nobody reads yet, with its `row_version`.

        Whatever lay in the pages before is replaced, so a call brings all rows of each page that
        it touches: those of a range of mixed keys (`Table.export_hash_range`).

        Args:
            generation: which.
            table: number of the table in it.
            keys: int64 [N], distinct.
            rows: uint8 [N, B].
            shards: write only the rows of these; None: all.

        Raises:
            ResourceExhaustedError: the store is full. UnavailableError: it does not answer.
        """

    def put(
        self, generation: Generation, table: int, keys: Keys, rows: Rows, versions: Versions
    ) -> int:
        """Writes rows of a generation that is read, each only over an older version.

        Args:
            generation: which.
            table: number of the table in it.
            keys: int64 [N], distinct.
            rows: uint8 [N, B]; ignored for tombstones.
            versions: uint64 [N]; the highest bit makes a tombstone.

        Returns:
            How many were newer than what lay there, and were written.

        Raises:
            NotFoundError: a marker of the generation is missing: the store lost its rows.
            ResourceExhaustedError, UnavailableError: as for `write`.
        """

    def digests(
        self, generation: Generation, table: int, shards: Collection[int] | None = None
    ) -> ShardDigests:
        """Returns what lies in each shard: uint64 [V, 3]; zeros for shards not asked for.

        A damaged shard has `DAMAGED_ROWS`, and sums of 0.
        """

    def set_markers(self, generation: Generation, digests: list[ShardDigests]) -> None:
        """Marks every shard as whole, with the digests [V, 3] of each table."""

    def missing_markers(self, generation: Generation) -> list[int]:
        """Returns the shards that are not marked as whole."""

    def delete_rows(
        self, generation: Generation, report: Callable[[int, int], None] = lambda done, of: None
    ) -> None:
        """Deletes rows and markers in small steps that others hardly notice; idempotent.

        Args:
            generation: which.
            report: gets (done, of), in shards times tables.
        """

    def stage(self, generation: Generation, version: int, blocks: Mapping[Place, bytes]) -> None:
        """Writes blocks of a cut that is not committed yet, each up to some MiB; idempotent.

        Args:
            generation: that the cut changes.
            version: of its rows.
            blocks: by their places.
        """

    def staged(
        self, generation: Generation, version: int, places: Sequence[Place]
    ) -> list[bytes | None]:
        """Returns blocks of a cut; None: it is not there."""

    def unstage(self, generation: Generation, version: int, places: Sequence[Place]) -> None:
        """Deletes all blocks of a cut, which lie at these places; idempotent."""

    def watermarks(self, generation: Generation) -> Versions:
        """Returns of each shard the last version folded into it: uint64 [V].

        0 stands for a shard without a marker.
        """

    def set_watermarks(self, generation: Generation, version: int, shards: Sequence[int]) -> None:
        """Notes that a cut was folded into shards, unless a newer one was.

        Where a shard has lost its marker, nothing happens.
        """

    def read(self, generation: Generation, table: int, keys: Keys) -> tuple[Rows, Versions, States]:
        """Returns rows uint8 [N, B], versions uint64 [N] and states uint8 [N] of keys int64 [N].

        For tools and tests; servers read natively.

        Raises:
            UnavailableError: a key could not be read.
        """
