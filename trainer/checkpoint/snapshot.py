"""The full contents of a checkpoint, as they were at one step, while training continues."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotrow.hashed_file import FileFacts, HashedFile
from hotrow.lineage import Lineage
from hotrow.ops.ranks import LONE, Ranks
from hotrow.ops.table_contents import open_snapshots
from hotrow.trainer.checkpoint import stored
from hotrow.trainer.checkpoint.array_file import Arrays, write_arrays
from hotrow.trainer.checkpoint.environment import environment
from hotrow.trainer.checkpoint.parts import REPLICATED, entry_of
from hotrow.trainer.checkpoint.position import Position
from hotrow.trainer.checkpoint.random_state import capture_random_state
from hotrow.trainer.checkpoint.table_files import (
    ROW_OVERHEAD_BYTES,
    RowFiles,
    removed_name,
    state_name,
    stem_of,
    write_removed,
)
from hotrow.trainer.checkpoint.variable_files import copy_variables

if TYPE_CHECKING:
    from hotrow._native import Snapshot
    from hotrow.ops.table import Table
    from hotrow.trainer.models import Ranker

_FILE_BYTES = 8192  # approximate blocks and header of a small file

_MOST_DROPPED = 4096  # rows that are read at a time and not written
_MOST_UNCHANGED = 4096  # rows that an increment does not write, whose digest is added at a time


class TrainingSnapshot:
    """The state of a run at one step. Make it between two steps, then write it in any thread.

    Attributes:
        position: the step, and the place in the data.
        kind: "full", or "increment" for changes since the last snapshot that was kept.
        bytes_needed: an upper bound of the files' size.
    """

    def __init__(
        self,
        model: Ranker,
        optimizer: Any,
        position: Position,
        metrics: Arrays,
        kind: str,
        idle: bool = False,
        lineage: Lineage = Lineage(),  # noqa: B008 (frozen)
        ranks: Ranks = LONE,
    ) -> None:
        """Takes the snapshot.

        Args:
            model: the snapshot holds its tables and weights; not trained during the call.
            optimizer: the Keras optimizer of the dense part, built.
            position: position of the run.
            metrics: metrics of the epoch so far, from `BinaryMetrics.state`.
            kind: "full" or "increment".
            idle: whether no step comes any more; then every table gets a digest.
            lineage: lineage of the run.
            ranks: the ranks that train the model; each takes its part of the tables, rank 0 all
                else.

        Raises:
            HotrowError: a table's snapshot fails.
        """
        self.position = position
        self.kind = kind
        self._lineage = lineage
        self._ranks = ranks.size
        self._dense: dict[str, Arrays] = {}
        if ranks.is_first:
            self._dense = {
                stored.MODEL: copy_variables(model.dense_variables()),
                stored.OPTIMIZER: copy_variables(optimizer.variables),
                stored.METRICS: metrics,
            }
        self._random = capture_random_state()
        tables = model.tables()
        snapshots = open_snapshots(tables.values(), "all" if kind == stored.FULL else "checkpoint")
        self._tables = {
            name: _TableSnapshot(table, snapshot, idle, ranks)
            for (name, table), snapshot in zip(tables.items(), snapshots, strict=True)
        }
        self.bytes_needed = sum(table.bytes_needed for table in self._tables.values()) + sum(
            _FILE_BYTES + sum(array.nbytes + 256 for array in arrays.values())
            for arrays in self._dense.values()
        )

    def write(
        self, directory: Path, hashed: dict[str, FileFacts], check: Callable[[], None]
    ) -> dict[str, Any]:
        """Writes this rank's files of the checkpoint and returns its entry of each table.

        Call it once.

        Args:
            directory: contains an empty directory for tables.
            hashed: receives the size and checksum of each file.
            check: called between pieces; an exception that it raises ends the write.

        Raises:
            OSError: the disk is full or refuses.
        """
        entries = self._write_tables(directory / stored.TABLES, hashed, check)
        for file, arrays in self._dense.items():
            hashed[file] = write_arrays(directory / file, arrays)
        if self._dense:
            with HashedFile(directory / stored.RANDOM) as random:
                random.write(json.dumps(self._random).encode())
            hashed[stored.RANDOM] = random.facts
        return entries

    def _write_tables(
        self, directory: Path, hashed: dict[str, FileFacts], check: Callable[[], None]
    ) -> dict[str, Any]:
        """Writes one table after the other, unless copies of rows take too much memory.

        Then the table with the most copies is written first, because reading it frees them.
        """
        files = {name: table.files(directory) for name, table in self._tables.items()}
        left = list(self._tables)
        name = left[0] if left else ""
        while left:
            check()
            chosen = self._next(left, name)
            if chosen != name:
                files[name].flush()  # one table at a time has memory for a piece
                name = chosen
            if not files[name].write_some():
                left.remove(name)
        for table in self._tables.values():  # they need no copies: after the rows
            while table.snapshot.add_unchanged(_MOST_UNCHANGED):
                check()
        return {
            name: table.finish(files[name], directory, hashed)
            for name, table in self._tables.items()
        }

    def _next(self, left: list[str], last: str) -> str:
        """Returns the table to write some rows of: the last one, unless another is more urgent."""
        if self._tables[left[0]].snapshot.short_of_memory:
            copied = {name: self._tables[name].snapshot.copied_bytes for name in left}
            # Stay while the last one has half of its share of the copies: fewer, larger files.
            if 2 * len(left) * copied.get(last, 0) < sum(copied.values()):
                return max(left, key=copied.__getitem__)
        return last if last in left else left[0]

    @property
    def waited_seconds(self) -> float:
        """How long training waited because copies of rows took too much memory."""
        return sum(table.snapshot.waited_seconds for table in self._tables.values())

    def facts(self, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Returns the manifest's values, from the results of `write` on each rank, in order."""
        alone = self._ranks == 1
        names = entries[0]
        return {
            "format": stored.FORMAT if alone else stored.FORMAT_OF_RANKS,
            "kind": self.kind,
            "position": self.position.as_json(),
            "lineage": self._lineage.as_json(),
            "environment": environment(self._ranks),
            "tables": entries[0]
            if alone
            else {name: entry_of([of_rank[name] for of_rank in entries]) for name in names},
        }

    def keep(self) -> None:
        """Makes the next increment relative to this snapshot. Call it once all is on the disk."""
        for table in self._tables.values():
            table.snapshot.keep()

    def close(self) -> None:
        """Frees the memory of the snapshot; rows of a snapshot that was not kept stay due."""
        for table in self._tables.values():
            table.snapshot.close()


class _TableSnapshot:
    """The snapshot of one table."""

    def __init__(self, table: Table, snapshot: Snapshot, idle: bool, ranks: Ranks) -> None:
        alone = ranks.size == 1
        self._stem = stem_of(table.name, None if alone else ranks.rank)
        # Equal on all ranks, so the first one writes it.
        self._written = table.config.sharding != REPLICATED or ranks.is_first
        self._line_bytes = table.line_bytes
        self._entry = {
            "layout": dict(table.layout),
            "optimizer": type(table.config.optimizer).__name__,
            "shards": table.config.shards,
            "size": table.size,
            "statistics": table.statistics(),
        }
        if not alone:
            columns = [table.columns.start, table.columns.stop]
            self._entry |= {"rank": ranks.rank, "columns": columns, "ranks": ranks.size}
            self._entry |= {"sharding": table.config.sharding, "owner": table.config.owner}
        self.snapshot = snapshot
        # Rows on disk that an increment does not write would have to be read for their digest.
        self._digest = table.digest() if idle and not snapshot.digests_all else None
        self._removed, self._state = self.snapshot.removed, self.snapshot.state
        self.bytes_needed = self._written * (
            self.snapshot.rows * (self._line_bytes + ROW_OVERHEAD_BYTES)
            + self._removed.nbytes
            + len(self._state)
            + 3 * _FILE_BYTES
        )

    def files(self, directory: Path) -> RowFiles | _UnwrittenRows:
        """Returns what writes the table's rows."""
        if not self._written:
            return _UnwrittenRows(self.snapshot)
        rows = self.snapshot
        return RowFiles(rows, self._stem, self._line_bytes, rows.rows, directory)

    def finish(
        self, files: RowFiles | _UnwrittenRows, directory: Path, hashed: dict[str, FileFacts]
    ) -> dict[str, Any]:
        """Writes what is not rows and returns the table's entry of the manifest."""
        stem, removed = self._stem, self._removed
        entry = {
            "step": self.snapshot.step,
            "digest": self._digest or self.snapshot.digest,
            **self._entry,
        }
        if not self._written:
            nothing = {"files": [], "rows": 0, "removed": None, "removed_rows": 0, "state": ""}
            return {**nothing, "nonfinite_rows": 0, **entry}
        written = dict(files.files)
        if len(removed):
            written[removed_name(stem)] = write_removed(removed, directory / removed_name(stem))
        with HashedFile(directory / state_name(stem)) as state:
            state.write(self._state)
        written[state_name(stem)] = state.facts
        hashed |= {f"{stored.TABLES}/{file}": facts for file, facts in written.items()}
        return {
            "files": list(files.files),
            "rows": files.rows,
            "nonfinite_rows": self.snapshot.nonfinite_rows,
            "removed": removed_name(stem) if len(removed) else None,
            "removed_rows": len(removed),
            "state": state_name(stem),
            **entry,
        }


class _UnwrittenRows:
    """The rows of a table that another rank writes: reading them frees their copies."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.files: dict[str, FileFacts] = {}
        self.rows = 0
        self._snapshot = snapshot

    def write_some(self) -> bool:
        """Reads some rows. Returns whether there may be more."""
        return bool(len(self._snapshot.read(_MOST_DROPPED)[0]))

    def flush(self) -> None:
        """Does nothing."""
