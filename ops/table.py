"""A training table: hash table of row lines `[weights | optimizer state]` in host memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow import _native
from hotrow.errors import InvalidArgumentError
from hotrow.ops import row_access
from hotrow.ops.row_access import as_keys
from hotrow.ops.row_batch import Keys, Rows, Uint32s
from hotrow.ops.table_contents import TableContents
from hotrow.spec import Schedule


class Table(TableContents):
    """A table that is trained; its attributes are those of `TableContents`.

    On several ranks it is this rank's part of the table. All ranks call `lookup` and `update`
    together, each with its own keys and whole rows; all other methods concern this part alone.

    N keys, D weights of a row.
    """

    def lookup(self, keys: Keys, insert: bool = False) -> Rows:
        """Returns the rows float32 [N, D] of keys int64 [N], duplicates allowed.

        Args:
            keys: any int64 values; with a `vocabulary_size`, values below it.
            insert: count an occurrence of each key, and give admitted keys their initial row. A key
                without a row reads the default row.

        Raises:
            OutOfRangeError: a key outside the vocabulary.
        """
        rows: Rows = self._native.lookup(as_keys(keys), insert)
        return rows

    def update(self, keys: Keys, gradients: Rows, learning_rate: float | None = None) -> None:
        """Sums gradients float32 [N, D] per distinct key and applies the optimizer once.

        Args:
            keys: int64 [N]; gradients of keys that are not admitted are dropped.
            gradients: float32 [N, D].
            learning_rate: learning rate of this step; None: the optimizer's, if it is a number.

        Raises:
            InvalidArgumentError: the optimizer has a schedule and `learning_rate` is None.
        """
        if learning_rate is None and isinstance(self.config.optimizer.learning_rate, Schedule):
            raise InvalidArgumentError(
                f"table {self.name!r} has a learning-rate schedule; give the learning_rate of the "
                "step"
            )
        self._native.update(
            as_keys(keys), np.ascontiguousarray(gradients, np.float32), learning_rate
        )

    def __len__(self) -> int:
        """Returns the number of rows on this rank."""
        return self.size

    def __bool__(self) -> bool:
        """True, also for a table without rows."""
        return True

    def __contains__(self, key: object) -> bool:
        """Returns whether an int64 key has a row."""
        return bool(self.contains(np.array([key]))[0])

    def contains(self, keys: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Returns bool [N]: whether keys int64 [N] have rows.

        Raises:
            InvalidArgumentError: keys that are not integers.
            UnimplementedError: the table is split over ranks.
        """
        return row_access.contains(self, keys)

    def assign(self, keys: npt.ArrayLike, weights: npt.ArrayLike) -> None:
        """Sets the weights of rows, between steps; keys without a row get one.

        A row that exists keeps its optimizer state and count. A new row has the state of a row that
        no step has updated; admission does not apply. The row's clock is the next step, so that
        incremental exports and checkpoints include it. 16-bit tables round to nearest.

        Args:
            keys: int64 [N], distinct.
            weights: float32 [N, D], finite.

        Raises:
            InvalidArgumentError: keys that are not integers or not distinct, weights of another
                shape or not finite.
            OutOfRangeError: a key outside the vocabulary.
            FailedPreconditionError: a snapshot is open.
            UnimplementedError: the table is split over ranks.
        """
        row_access.assign(self, keys, weights)

    def remove(self, keys: npt.ArrayLike) -> int:
        """Removes the rows of keys int64 [N], between steps; returns how many existed.

        Incremental exports and checkpoints remove them too: once the model was exported to a store,
        tombstones of the next step record the keys. A key that training looks up again gets its
        initial row.

        Raises:
            InvalidArgumentError: keys that are not integers.
            FailedPreconditionError: a snapshot is open.
            UnimplementedError: the table is split over ranks.
        """
        return row_access.remove(self, keys)

    def batches(self, batch_rows: int = row_access.BATCH_ROWS) -> Iterator[tuple[Keys, Rows]]:
        """Yields keys int64 [N] and weights float32 [N, D] of all rows, between steps.

        Args:
            batch_rows: largest number of rows in a batch.

        Raises:
            UnimplementedError: the table is split over ranks.
        """
        return row_access.batches(self, batch_rows)

    def save_npz(self, path: str | Path) -> None:
        """Writes arrays `keys` int64 [R] and `weights` float32 [R, D] of all R rows, through RAM.

        Raises:
            UnimplementedError: the table is split over ranks.
        """
        row_access.save_npz(self, path)

    def save_parquet(self, path: str | Path) -> None:
        """Writes columns `key` int64 and `weights`, D float32, of all rows, a batch at a time.

        Raises:
            UnimplementedError: the table is split over ranks.
        """
        row_access.save_parquet(self, path)

    @staticmethod
    def push_all(tables: Iterable[Table], learning_rates: Sequence[float] | None = None) -> None:
        """Sends the owners of rows all pending gradients of their replicas.

        All ranks call it together, with the same tables. It is a step of the tables with staleness;
        afterwards the rows at their owners are those of the whole model. Other tables do not
        change.

        Args:
            tables: the tables of one layer.
            learning_rates: [T] of this step; None: those of the optimizers, which must be numbers.
        """
        native = [table._native for table in tables if table.ranks.size > 1]
        if native:
            _native.push_all(native, None if learning_rates is None else list(learning_rates))

    @staticmethod
    def prefetch_on_ranks(tables: Iterable[Table], features: list[Any]) -> None:
        """Prefetches a batch of a layer on ranks; see `_native.rank_prefetch`."""
        _native.rank_prefetch([table._native for table in tables], features)

    def prefetch(self, keys: Keys) -> None:
        """Brings rows into the device tier before their batches look them up, on another thread.

        Call it with the keys of a window: those of the next k batches in order. Make the call when
        the first batch of the previous window begins. The rows of both windows then stay until the
        next call. Results of the table do not change. Without a cache, nothing happens.

        Args:
            keys: int64 [N], duplicates allowed; keys without a row are skipped. They are copied.

        Raises:
            OutOfRangeError: a key outside the vocabulary.
        """
        self._native.prefetch(as_keys(keys))

    def wait_for_prefetch(self) -> None:
        """Waits until the rows of all windows are in the device tier."""
        self._native.wait_for_prefetch()

    def warm_up(self, keys: Keys, counts: Uint32s, share: float = 0.7) -> int:
        """Fills the cache with the most frequent rows of a sample, and prefers them from now on.

        Args:
            keys: int64 [N], distinct; a key without a row is only counted.
            counts: uint32 [N], how often each key appeared in the sample.
            share: largest share of the cache to fill, in [0, 1].

        Returns:
            How many rows were brought in.

        Raises:
            InvalidArgumentError: `share` is out of range.
            OutOfRangeError: a key outside the vocabulary.
        """
        return int(
            self._native.warm_up(as_keys(keys), np.ascontiguousarray(counts, np.uint32), share)
        )

    def statistics(self) -> dict[str, int]:
        """Returns rows, bytes, lookups, admitted, refused, waiting, expired and tombstones.

        `updates` counts updates of rows: a step updates each row of its batch once.
        `nonfinite_updates` of them were left out, because a weight or a state would have become
        NaN or infinite; the row stayed as it was.

        `refused` counts occurrences of keys that were not admitted. `waiting` is the number of keys
        that are counted and not admitted yet. Totals run since the table was made, also across a
        restoration. `tombstones_dropped` counts the tombstones that were dropped because there were
        more than `Expiry.tombstones`, since this process made the table.

        Of the device tier: `cache_slots` (0: no cache). In distinct keys of training batches:
        `cache_hits` (`cache_hit_lookups` counts each key as often as it appeared), `cache_misses`,
        `cache_inserted` (rows brought in), `cache_evicted` (rows that left for them),
        `cache_written_back` (rows updated in the host tier), `cache_prefetched` (rows that
        prefetching brought in). `cache_stall_ns`: nanoseconds that lookups of training spent on
        bringing rows in or waiting for them. Of rows on disk: `disk_bytes` of the file (0: rows are
        in memory), `disk_lines_read`, `disk_lines_written`. These run since this process made the
        table; `cache_steps` counts steps since then or since a restoration.
        """
        return {
            **self._native.statistics(),
            "cache_steps": self.step - self._first_step if self.config.cache else 0,
        }
