"""The contents of a table: rows `[weights | optimizer state]`, and all other state."""

from __future__ import annotations

import builtins
import dataclasses
import uuid
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hotrow import _native
from hotrow.line_layout import LineLayout
from hotrow.ops.placement import placement_of
from hotrow.ops.ranks import LONE, Ranks
from hotrow.ops.row_access import as_keys
from hotrow.ops.row_batch import Keys, Lines, RowBatch, Uint32s, ranges_of_mixed_keys
from hotrow.ops.table_arguments import core_arguments
from hotrow.spec import Constant, TableConfig

Since = Literal["all", "checkpoint", "publish"]
"""The rows that a snapshot reads; see `TableContents.snapshot`."""


class TableContents:
    """A table in the process-wide registry of the native core: import and export, between steps.

    The table lives as long as this object; ops that run afterwards fail with NotFound.

    N keys, D weights of a row (of `columns` in the lines of a part), L bytes of a row line.

    Attributes:
        config: the configuration that it was made from.
        ranks: the ranks over which the table is split.
        handle: its unique name in the registry, an attribute of the ops.
        placement: the device of its ops.
        history: a random id; it changes whenever rows change other than by training. Under one id,
            the clocks show which rows have changed.

    Raises:
        FailedPreconditionError: the GPU of its cache does not exist, or the native core was built
            without CUDA.
    """

    def __init__(self, config: TableConfig, seed: int, ranks: Ranks = LONE) -> None:
        self.config = config
        self.ranks = ranks
        self.placement = placement_of(config)
        # Unique among all processes: a SavedModel carries the handle into other processes.
        self.handle = f"{config.name}#{uuid.uuid4().hex}"
        self._native = _native.Table(
            handle=self.handle,
            seed=seed,
            **core_arguments(config, ranks, self.placement.cuda_device),
        )
        weakref.finalize(self, _native.drop_table, self.handle)
        self._first_step = 0
        self._empty_line: Lines | None = None
        self._begin_history()

    def _begin_history(self) -> None:
        self.history = uuid.uuid4().hex
        self._exported: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The table's name."""
        return self.config.name

    @property
    def dim(self) -> int:
        """Weights in a row, D."""
        return self.config.embedding_dim

    @property
    def columns(self) -> range:
        """The columns of each row that this part of the table has, among D."""
        first, count = self._native.columns
        return range(first, first + count)

    def owns(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Returns bool [N]: whether this part has rows, or columns, of keys int64 [N]."""
        owned: npt.NDArray[np.bool_] = self._native.owns(as_keys(keys)).view(np.bool_)
        return owned

    @property
    def default_value(self) -> float:
        """The value of every weight in the default row, rounded to the table's type."""
        return float(self._native.default_value)

    @property
    def layout(self) -> dict[str, int]:
        """Where the parts of a row line lie, as JSON types; `LineLayout.from_facts` reads it."""
        return dict(self._native.layout)

    @property
    def line_layout(self) -> LineLayout:
        """Where the parts of a row line lie."""
        return LineLayout.from_facts(self.layout)

    @property
    def line_bytes(self) -> int:
        """Bytes of a row line, L."""
        return int(self._native.line_bytes)

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self._native.size)

    @property
    def bytes(self) -> int:
        """Bytes of memory that the table holds."""
        return int(self._native.bytes)

    @property
    def step(self) -> int:
        """Number of commits so far; a row's clock is the step of its last update."""
        return int(self._native.step)

    @step.setter
    def step(self, value: int) -> None:
        self._begin_history()
        self._native.step = self._first_step = value

    def like_one_row(self) -> Lines:
        """Returns the line uint8 [L] of a row with weights 0 that no step has updated."""
        config = dataclasses.replace(
            self.config, initializer=Constant(0.0), admission=None, expiry=None, cache=None
        )
        other = TableContents(config, 0)
        other._native.lookup(np.zeros(1, np.int64), True)
        (batch,) = other.export_batches()
        line: Lines = batch.lines[0]
        return line

    def export_batches(self, batch_rows: int = 65536) -> Iterator[RowBatch]:
        """Yields all rows, at most `batch_rows` at once.

        Rows come by shard, partition and place. Do not train during the iteration; read a
        `snapshot` instead.
        """
        layout = self.line_layout
        cursor, waiting = 0, 0
        pieces: list[list[Any]] = []
        while cursor >= 0:  # the core gives at most the rows of a partition at once
            cursor, keys, *more = self._native.export_rows(cursor, batch_rows - waiting)
            waiting += len(keys)
            pieces.append([keys, *more])
            if waiting and (waiting == batch_rows or cursor < 0):
                yield RowBatch(layout, *(np.concatenate(p) for p in zip(*pieces, strict=True)))
                waiting, pieces = 0, []

    def export_hash_ranges(self, most_rows: int) -> Iterator[RowBatch]:
        """Yields all rows; each batch has all rows of a range of mixed keys, and the ranges ascend.

        Do not train during the iteration.

        Args:
            most_rows: approximate limit of a batch's rows; it sets the width of the ranges.
        """
        yield from ranges_of_mixed_keys(
            self._native, self.line_layout, rows=self.size, most_rows=most_rows
        )

    def import_rows(
        self,
        keys: Keys,
        lines: Lines,
        clocks: Uint32s,
        counts: Uint32s,
        places: Uint32s | None = None,
    ) -> None:
        """Writes rows; a row of an existing key replaces the old one.

        Args:
            keys: int64 [N], distinct.
            lines: uint8 [N, L], in this table's layout.
            clocks: uint32 [N].
            counts: uint32 [N].
            places: uint32 [N], as exported from a table with the same number of shards; the table
                then behaves later as that one would, bit for bit. None: any free places.
        """
        self._begin_history()
        self._native.import_rows(
            as_keys(keys),
            np.ascontiguousarray(lines, np.uint8),
            np.ascontiguousarray(clocks, np.uint32),
            np.ascontiguousarray(counts, np.uint32),
            None if places is None else np.ascontiguousarray(places, np.uint32),
        )

    def remove_rows(self, keys: Keys) -> int:
        """Removes the rows of keys int64 [N], without tombstones; returns how many existed."""
        self._begin_history()
        return int(self._native.remove_rows(as_keys(keys)))

    def tombstones(self) -> tuple[Keys, Uint32s]:
        """Returns the expired keys int64 [N] and the steps uint32 [N] at which they expired."""
        keys, steps = self._native.tombstones()
        return keys, steps

    @property
    def forgotten_step(self) -> int:
        """The last step of which tombstones were dropped, or not kept; 0: none."""
        return int(self._native.forgotten_step)

    def keep_tombstones(self) -> None:
        """Keeps tombstones of keys that expire or are removed from now on; before, it keeps none.

        Memory and checkpoints hold them until `forget_tombstones`, at most `Expiry.tombstones`.
        """
        self._native.keep_tombstones()

    def forget_tombstones(self, up_to_step: int) -> None:
        """Drops the tombstones of keys that expired at this step or before."""
        self._native.forget_tombstones(up_to_step)

    def note_exported(self, place: str, step: int) -> None:
        """Notes that a place has the rows of a step, and that changes may be exported to it.

        The table keeps tombstones from now on, and drops those that every noted place has taken.

        Args:
            place: any name of a model in a store.
            step: `Table.step` of the exported rows.
        """
        self._exported[place] = step
        self.keep_tombstones()
        self.forget_tombstones(min(self._exported.values()))

    def state(self) -> builtins.bytes:
        """Returns all state besides rows: step, sweep, totals, tombstones, occurrences."""
        return self._native.state()

    def set_state(self, state: builtins.bytes) -> None:
        """Restores what `state` returned.

        Raises:
            DataLossError: the state is damaged.
            FailedPreconditionError: the state is from another admission or number of shards.
        """
        self._begin_history()
        self._native.set_state(state)
        self._first_step = self.step

    def merge_states(self, states: list[builtins.bytes], counted: list[bool]) -> None:
        """Restores states that `state` returned on ranks with any split of the table.

        It restores the step, the totals, and the tombstones of keys owned here. Occurrences start
        from 0.

        Args:
            states: the states of all these ranks.
            counted: for each state, whether this table continues its totals.

        Raises:
            DataLossError: a state is damaged.
        """
        self._begin_history()
        self._native.merge_states(states, counted)
        self._first_step = self.step

    def snapshot(self, since: Since) -> _native.Snapshot:
        """Returns the rows as they are now, to be read while training continues.

        Two snapshots may be open at once: one for checkpoints ("all" or "checkpoint"), and one for
        publishing. Each has its own marks of changed rows.

        Args:
            since: "all": all rows; "checkpoint": rows updated or created since the last of these
                snapshots that was kept; "publish": rows marked since the last "publish" snapshot
                that was kept, or since `begin_publishing`.

        Raises:
            FailedPreconditionError: such a snapshot is open, or "publish" comes before
                `begin_publishing`.
        """
        [snapshot] = open_snapshots([self], since)
        return snapshot

    def begin_publishing(self, since: int | None) -> None:
        """Marks from now on all rows that change, for the next `snapshot("publish")`.

        It drops earlier marks, and marks the rows that changed after a step. Before the first call
        nothing is marked for publishing, which costs nothing.

        Args:
            since: marks the rows whose clock is above this step of the table, and as removed the
                keys that expired after it. None: marks all rows and no keys, for a new base.

        Raises:
            FailedPreconditionError: the table has forgotten tombstones since then, or a snapshot
                for publishing is open.
            InvalidArgumentError: `since` is after the table's step.
        """
        self._native.begin_publishing(since)

    def mark_for_publishing(self, keys: Keys) -> None:
        """Marks the rows of keys int64 [N], repeated ones too; keys without a row as removed.

        It leaves out keys that this part of the table does not own.

        Raises:
            FailedPreconditionError: before `begin_publishing`.
        """
        self._native.mark_for_publishing(as_keys(keys))

    @property
    def marked_rows(self) -> int:
        """Rows and removed keys marked for publishing, those of an open snapshot left out.

        Rows that changed in a cache count once they are written back; a snapshot has them all.
        """
        return int(self._native.marked_rows)

    def digest(self, weights_only: bool = False) -> str:
        """Returns 32 hex digits that depend on the rows, not on their order.

        Args:
            weights_only: digest keys and float32 weights alone; otherwise clocks, counts and state
                too.
        """
        return str(self._native.digest(weights_only))

    def clear(self) -> None:
        """Removes every row, pending gradients, occurrence counts and tombstones."""
        self._begin_history()
        self._native.clear()


def open_snapshots(tables: Iterable[TableContents], since: Since) -> list[_native.Snapshot]:
    """Returns a snapshot of each table, to be read while training continues.

    Training copies a row before it changes one that was not read yet. All copies share one budget
    of memory: 10 % of the tables', at least 64 MiB. Read the snapshot with the most `copied_bytes`
    once they are `short_of_memory`. When the budget is used up, training waits for the readers;
    but it does not wait for those of "publish", which are lost: their rows stay marked.

    Args:
        tables: not trained during the call.
        since: see `Table.snapshot`.
    """
    return _native.open_snapshots([table._native for table in tables], since)
