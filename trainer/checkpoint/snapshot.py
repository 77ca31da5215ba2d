"""All that a checkpoint holds, as it was at one step, while training goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotrow.hashed_file import FileFacts, HashedFile
from hotrow.lineage import Lineage
from hotrow.trainer.checkpoint import stored
from hotrow.trainer.checkpoint.array_file import Arrays, write_arrays
from hotrow.trainer.checkpoint.environment import environment
from hotrow.trainer.checkpoint.position import Position
from hotrow.trainer.checkpoint.random_state import capture_random_state
from hotrow.trainer.checkpoint.table_files import (
    ROW_OVERHEAD_BYTES,
    removed_name,
    state_name,
    write_removed,
    write_rows,
)
from hotrow.trainer.checkpoint.variable_files import copy_variables

if TYPE_CHECKING:
    from hotrow.ops.table import Table
    from hotrow.trainer.models import Ranker

DIGEST_BYTES = 256 << 20
"""Tables up to this size get the digest of all their rows; reading more would stall training."""

_FILE_BYTES = 8192  # blocks and header of a small file, about


class TrainingSnapshot:
    """The state of a run at one step. Make it between two steps, then write it in any thread.

    Attributes:
        position: the step, and where in the data.
        kind: "full", or "increment" for what changed since the last snapshot that was kept.
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
    ) -> None:
        """Takes the snapshot.

        Args:
            model: its tables and weights are taken; nobody trains it meanwhile.
            optimizer: the Keras optimizer of the dense part, built.
            position: where the run stands.
            metrics: of the epoch so far, from `BinaryMetrics.state`.
            kind: "full" or "increment".
            complete_digest: take the digest of large tables, too; training waits for it.
            lineage: of the run.

        Raises:
            HotrowError: a table cannot be taken; none stays taken.
        """
        self.position = position
        self.kind = kind
        self._lineage = lineage
        self._dense: dict[str, Arrays] = {
            stored.MODEL: copy_variables(model.dense_variables()),
            stored.OPTIMIZER: copy_variables(optimizer.variables),
            stored.METRICS: metrics,
        }
        self._random = capture_random_state()
        self._tables: dict[str, _TableSnapshot] = {}
        try:
            for name, table in model.tables().items():
                self._tables[name] = _TableSnapshot(table, kind, complete_digest)
        except BaseException:
            self.close()
            raise
        self.bytes_needed = sum(table.bytes_needed for table in self._tables.values()) + sum(
            _FILE_BYTES + sum(array.nbytes + 256 for array in arrays.values())
            for arrays in self._dense.values()
        )

    def write(
        self,
        directory: Path,
        facts: dict[str, Any],
        hashed: dict[str, FileFacts],
        check: Callable[[], None],
    ) -> None:
        """Writes all files of the checkpoint besides its manifest. Call it once.

        Args:
            directory: empty.
            facts: gets what the manifest says about them.
            hashed: gets the size and checksum of each file.
            check: called between pieces; what it raises ends the writing.

        Raises:
            OSError: the disk is full or refuses.
        """
        facts |= {
            "format": stored.FORMAT,
            "kind": self.kind,
            "position": asdict(self.position),
            "lineage": self._lineage.as_json(),
            "environment": environment(),
            "tables": {},
        }
        (directory / stored.TABLES).mkdir()
        for name, table in self._tables.items():
            facts["tables"][name] = table.write(directory / stored.TABLES, hashed, check)
        for file, arrays in self._dense.items():
            hashed[file] = write_arrays(directory / file, arrays)
        with HashedFile(directory / stored.RANDOM) as random:
            random.write(json.dumps(self._random).encode())
        hashed[stored.RANDOM] = random.facts

    def keep(self) -> None:
        """Makes this what the next increment is relative to. Call it once all is on the disk."""
        for table in self._tables.values():
            table.snapshot.keep()

    def close(self) -> None:
        """Gives the memory of the snapshot back; what was not kept stays due."""
        for table in self._tables.values():
            table.snapshot.close()


class _TableSnapshot:
    """One table."""

    def __init__(self, table: Table, kind: str, complete_digest: bool) -> None:
        self._name = table.name
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
        self.snapshot = table.snapshot("all" if kind == stored.FULL else "checkpoint")
        self._removed, self._state = self.snapshot.removed, self.snapshot.state
        self.bytes_needed = (
            self.snapshot.rows * (self._line_bytes + ROW_OVERHEAD_BYTES)
            + self._removed.nbytes
            + len(self._state)
            + 3 * _FILE_BYTES
        )

    def write(
        self, directory: Path, hashed: dict[str, FileFacts], check: Callable[[], None]
    ) -> dict[str, Any]:
        """Writes the table's files and returns its entry of the manifest."""
        snapshot, name = self.snapshot, self._name
        files, rows = write_rows(snapshot, name, self._line_bytes, snapshot.rows, directory, check)
        written = dict(files)
        removed = self._removed
        if len(removed):
            written[removed_name(name)] = write_removed(removed, directory / removed_name(name))
        with HashedFile(directory / state_name(name)) as state:
            state.write(self._state)
        written[state_name(name)] = state.facts
        hashed |= {f"{stored.TABLES}/{file}": facts for file, facts in written.items()}
        return {
            "files": list(files),
            "rows": rows,
            "removed": removed_name(name) if len(removed) else None,
            "removed_rows": len(removed),
            "state": state_name(name),
            "step": snapshot.step,
            **self._entry,
        }
