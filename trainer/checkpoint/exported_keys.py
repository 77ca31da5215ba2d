"""The keys of an exported checkpoint: which of them are gone, no tombstone has to show."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.lineage import Lineage
from hotrow.ops.row_batch import Keys
from hotrow.trainer.checkpoint.exported import exported_steps
from hotrow.trainer.checkpoint.part_rows import removed_of, rows_of
from hotrow.trainer.checkpoint.stored import StoredCheckpoint, name_of, open_chain


def keys_of_export(checkpoints: Path, lineage: Lineage, table: str, clock: int) -> Keys | None:
    """Returns the keys int64 [N] of a table's rows in an exported checkpoint, ascending.

    Memory: the keys, and one file of rows.

    Args:
        checkpoints: the folder of a run's checkpoints.
        lineage: lineage of a later state of the run.
        table: the table's name.
        clock: the table's step in that checkpoint.

    Returns:
        None if no exported checkpoint that is there and whole has this step of the table, or the
        later state did not go on from it.
    """
    for step in reversed(exported_steps(checkpoints)):
        try:
            chain = open_chain(checkpoints / name_of(step))
        except (DataLossError, FailedPreconditionError):
            continue
        facts = chain[-1].facts
        own = Lineage.of_json(facts.get("lineage", []))
        goes_on = lineage.descends_from(own.id, facts["position"]["step"])
        if goes_on and table in facts["tables"] and chain[-1].table(table)["step"] == clock:
            return _keys(chain, table)
    return None


def _keys(chain: list[StoredCheckpoint], table: str) -> Keys:
    keys: Keys = np.empty(0, np.int64)
    for checkpoint in chain:
        new = [rows.keys for rows in rows_of(checkpoint, table)]
        kept = np.setdiff1d(keys, removed_of(checkpoint, table))
        keys = np.unique(np.concatenate([kept, *new]))
    return keys
