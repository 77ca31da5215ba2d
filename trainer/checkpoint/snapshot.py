"""The full contents of a checkpoint, as they were at one step, while training continues."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotrow.hashed_file import FileFacts, HashedFile
from hotrow.lineage import Lineage
from hotrow.ops.ranks import LONE, Ranks
from hotrow.trainer.checkpoint import stored
from hotrow.trainer.checkpoint.array_file import Arrays, write_arrays
from hotrow.trainer.checkpoint.environment import environment
from hotrow.trainer.checkpoint.parts import REPLICATED, entry_of
from hotrow.trainer.checkpoint.position import Position
from hotrow.trainer.checkpoint.random_state import capture_random_state
from hotrow.trainer.checkpoint.table_files import (
    ROW_OVERHEAD_BYTES,
    removed_name,
    state_name,
    stem_of,
    write_removed,
    write_rows,
)
from hotrow.trainer.checkpoint.variable_files import copy_variables

if TYPE_CHECKING:
    from hotrow.ops.table import Table
    from hotrow.trainer.models import Ranker

DIGEST_BYTES = 256 << 20
"""Tables up to this size get the digest of all their rows; reading more would stall training."""

_FILE_BYTES = 8192  # approximate blocks and header of a small file


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
        complete_digest: bool = False,
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
            complete_digest: compute the digest of large tables, too; training waits for it.
            lineage: lineage of the run.
            ranks: the ranks that train the model; each takes its part of the tables, rank 0 all
                else.

        Raises:
            HotrowError: a table's snapshot fails; those already taken are released.
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
        self._tables: dict[str, _TableSnapshot] = {}
        try:
            for name, table in model.tables().items():
                self._tables[name] = _TableSnapshot(table, kind, complete_digest, ranks)
        except BaseException:
            self.close()
            raise
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
        entries = {
            name: table.write(directory / stored.TABLES, hashed, check)
            for name, table in self._tables.items()
        }
        for file, arrays in self._dense.items():
            hashed[file] = write_arrays(directory / file, arrays)
        if self._dense:
            with HashedFile(directory / stored.RANDOM) as random:
                random.write(json.dumps(self._random).encode())
            hashed[stored.RANDOM] = random.facts
        return entries

    def facts(self, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Returns the manifest's values, from the results of `write` on each rank, in order."""
        alone = self._ranks == 1
        names = entries[0]
        return {
            "format": stored.FORMAT if alone else stored.FORMAT_OF_RANKS,
            "kind": self.kind,
            "position": asdict(self.position),
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

    def __init__(self, table: Table, kind: str, complete_digest: bool, ranks: Ranks) -> None:
        alone = ranks.size == 1
        self._stem = stem_of(table.name, None if alone else ranks.rank)
        # Equal on all ranks, so the first one writes it.
        self._written = table.config.sharding != REPLICATED or ranks.is_first
        self._line_bytes = table.line_bytes
        digest = complete_digest or table.bytes <= DIGEST_BYTES
        self._entry = {
            "layout": dict(table.layout),
            "optimizer": type(table.config.optimizer).__name__,
            "shards": table.config.shards,
            "size": table.size,
            "digest": table.digest() if digest else None,
            "statistics": table.statistics(),
        }
        if not alone:
            columns = [table.columns.start, table.columns.stop]
            self._entry |= {"rank": ranks.rank, "columns": columns, "ranks": ranks.size}
            self._entry |= {"sharding": table.config.sharding, "owner": table.config.owner}
        self.snapshot = table.snapshot("all" if kind == stored.FULL else "checkpoint")
        self._removed, self._state = self.snapshot.removed, self.snapshot.state
        self.bytes_needed = self._written * (
            self.snapshot.rows * (self._line_bytes + ROW_OVERHEAD_BYTES)
            + self._removed.nbytes
            + len(self._state)
            + 3 * _FILE_BYTES
        )

    def write(
        self, directory: Path, hashed: dict[str, FileFacts], check: Callable[[], None]
    ) -> dict[str, Any]:
        """Writes the table's files and returns its entry of the manifest."""
        snapshot, stem = self.snapshot, self._stem
        if not self._written:
            nothing = {"files": [], "rows": 0, "removed": None, "removed_rows": 0, "state": ""}
            return {**nothing, "step": snapshot.step, **self._entry}
        files, rows = write_rows(snapshot, stem, self._line_bytes, snapshot.rows, directory, check)
        written = dict(files)
        removed = self._removed
        if len(removed):
            written[removed_name(stem)] = write_removed(removed, directory / removed_name(stem))
        with HashedFile(directory / state_name(stem)) as state:
            state.write(self._state)
        written[state_name(stem)] = state.facts
        hashed |= {f"{stored.TABLES}/{file}": facts for file, facts in written.items()}
        return {
            "files": list(files),
            "rows": rows,
            "removed": removed_name(stem) if len(removed) else None,
            "removed_rows": len(removed),
            "state": state_name(stem),
            "step": snapshot.step,
            **self._entry,
        }
