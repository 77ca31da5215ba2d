"""The interface of a store: LMDB and Redis implement it, all other code uses it.

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


BLOCK_BYTES = 1 << 20
"""Of a block of a cut, at most, about."""

Change = tuple[str, str | None, str | None]
"""Of a control record: its name, the text that it should have, the new one; None: absent."""
Place = tuple[int, int]
"""Of a staged block: the virtual shard in whose slot it lies, and its number there, below 2^31."""


class Records(Protocol):
    """Control records: small texts by name, changed by compare-and-set.

    All methods raise UnavailableError when the store does not answer.
    """

    def get(self, name: str) -> str | None:
        """Returns the text of a record; None: no such record."""

    def swap(self, name: str, expected: str | None, text: str | None) -> bool:
        """Writes a record if it is as expected (None: absent); `text` None removes it.

        Returns:
            True if it was as expected; otherwise nothing changed.
        """

    def swap_all(self, changes: Sequence[Change]) -> bool:
        """Does the same with several records atomically: all of them, or none.

        Args:
            changes: (name, expected, text) of each; no name twice.
        """

    def names(self, prefix: str) -> list[str]:
        """Returns the names that begin with `prefix`, sorted."""

    def texts(self, prefix: str) -> dict[str, str]:
        """Returns the texts of the records whose names begin with `prefix`, by name, sorted.

        Each is read by itself; a record that is deleted meanwhile is left out.
        """

    def next_number(self) -> int:
        """Returns a number, 1 or more, that this store never returned before; they ascend."""

    def now_ms(self) -> int:
        """Returns the store's clock, in milliseconds; all its clients see the same one."""


class Announcements(Protocol):
    """Calls a function after each announcement, in a thread of its own, until it is closed."""

    def close(self) -> None:
        """Ends it."""


class RowStore(Protocol):
    """A store of generations."""

    @property
    def url(self) -> str:
        """URL of the store, without a password."""

    @property
    def records(self) -> Records:
        """Its control records."""

    def close(self) -> None:
        """Closes connections and files."""

    def topology(self) -> dict[str, Any]:
        """Returns the nodes and their slots, as JSON types for the native reader of Redis.

        `{"cluster": bool, "nodes": [{"address": "host:port" or "unix:/path", "slots":
        [[first, last], ...]}, ...]}`; an embedded store has no nodes.
        """

    def statistics(self, generation: Generation) -> StoreStatistics | None:
        """Returns the memory of a generation; None: the store has no such statistics."""

    def check_safe_for_rows(self) -> None:
        """Checks that the store never evicts a row.

        Raises:
            FailedPreconditionError: it may (`maxmemory-policy` of Redis).
        """

    def pages_of(self, record_bytes: int, rows: int, shards: int) -> int:
        """Returns P for a table of this many rows and this size of a record; 0: no pages."""

    def begin(self, generation: Generation) -> None:
        """Prepares a generation for its first rows; idempotent. Its record exists."""

    def write(
        self,
        generation: Generation,
        table: int,
        keys: Keys,
        rows: Rows,
        shards: Collection[int] | None = None,
    ) -> None:
        """Writes rows of a generation that no server reads yet, with its `row_version`.

        A call replaces all earlier contents of the pages that it touches. So it must contain all
        rows of these pages: the rows of a range of mixed keys (`Table.export_hash_ranges`).

        Args:
            generation: the generation.
            table: the table's number in it.
            keys: int64 [N], distinct.
            rows: uint8 [N, B].
            shards: write only the rows of these shards; None: all.

        Raises:
            ResourceExhaustedError: the store is full. UnavailableError: it does not answer.
        """

    def put(
        self, generation: Generation, table: int, keys: Keys, rows: Rows, versions: Versions
    ) -> int:
        """Writes rows of a generation that servers read, each only over an older version.

        Args:
            generation: the generation.
            table: the table's number in it.
            keys: int64 [N], distinct.
            rows: uint8 [N, B]; ignored for tombstones.
            versions: uint64 [N]; the highest bit marks a tombstone.

        Returns:
            How many rows were newer than the stored ones, and were written.

        Raises:
            NotFoundError: a marker of the generation is missing: the store lost its rows.
            ResourceExhaustedError, UnavailableError: as for `write`.
        """

    def digests(
        self, generation: Generation, table: int, shards: Collection[int] | None = None
    ) -> ShardDigests:
        """Returns the digests of each shard: uint64 [V, 3]; zeros for shards not in `shards`.

        A damaged shard has `DAMAGED_ROWS`, and sums of 0.
        """

    def set_markers(self, generation: Generation, digests: list[ShardDigests]) -> None:
        """Marks every shard as whole, with the digests [V, 3] of each table."""

    def missing_markers(self, generation: Generation) -> list[int]:
        """Returns the shards that are not marked as whole."""

    def delete_rows(
        self, generation: Generation, report: Callable[[int, int], None] = lambda done, of: None
    ) -> None:
        """Deletes rows and markers in small steps with little effect on other clients; idempotent.

        Args:
            generation: the generation.
            report: called with (done, of), in shards times tables.
        """

    def stage(self, generation: Generation, version: int, blocks: Mapping[Place, bytes]) -> None:
        """Writes blocks of an uncommitted cut, each of up to a few MiB; idempotent.

        Args:
            generation: the generation that the cut changes.
            version: version of its rows.
            blocks: by their places.
        """

    def staged(
        self,
        generation: Generation,
        version: int,
        places: Sequence[Place],
        block_bytes: int = BLOCK_BYTES,
    ) -> list[bytes | None]:
        """Returns blocks of a cut; None for a missing one.

        Args:
            generation: the generation that the cut changes.
            version: version of the cut.
            places: of the blocks.
            block_bytes: of a block, about: many small ones are read at a time.
        """

    def unstage(
        self,
        generation: Generation,
        version: int,
        places: Sequence[Place],
        *,
        others_stay: bool = False,
    ) -> None:
        """Deletes blocks of a cut; idempotent.

        Args:
            generation: the generation that the cut changes.
            version: version of the cut.
            places: of the blocks.
            others_stay: whether the cut has blocks at other places, which are needed still.
        """

    def await_replicas(self, generation: Generation) -> None:
        """Returns when copies of the store have all that was written, if that was asked for.

        Raises:
            UnavailableError: too few have it in time.
        """

    def announce(self, model: str) -> None:
        """Wakes up those who wait for announcements of a model; a message may be lost.

        A failure is no error. A store without announcements does nothing.
        """

    def announcements(self, model: str, wake: Callable[[], None]) -> Announcements | None:
        """Calls `wake` after each announcement of a model; also after pauses in receiving them.

        Args:
            model: name of the model.
            wake: called in a thread of the store; it returns at once.

        Returns:
            None: the store has no announcements.
        """

    def watermarks(self, generation: Generation) -> Versions:
        """Returns, for each shard, the last version folded into it: uint64 [V].

        It is 0 for a shard without a marker.
        """

    def set_watermarks(
        self, generation: Generation, version: int, shards: Sequence[int], least: int = 0
    ) -> None:
        """Records that a cut was folded into shards, unless a newer one was.

        A shard that has lost its marker does not change, nor does one with a watermark below
        `least`: it has lost rows of an earlier cut, which the new watermark would hide.
        """

    def read(self, generation: Generation, table: int, keys: Keys) -> tuple[Rows, Versions, States]:
        """Returns rows uint8 [N, B], versions uint64 [N] and states uint8 [N] of keys int64 [N].

        For tools and tests; servers read natively.

        Raises:
            UnavailableError: a key could not be read.
        """
