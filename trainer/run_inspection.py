"""What a run directory holds: its newest undamaged checkpoint, without loading a model."""

from __future__ import annotations

from pathlib import Path

from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.inspection import InspectedTable, Inspection
from hotrow.trainer.checkpoint import CheckpointDirectory
from hotrow.trainer.checkpoint.stored import open_chain
from hotrow.trainer.run_directory import CHECKPOINTS, read_config


def inspect_run(path: Path) -> Inspection:
    """Reads the configuration and the newest undamaged checkpoint of a run.

    Raises:
        NotFoundError: there is no run.
        FailedPreconditionError: it has no checkpoint yet.
        DataLossError: every checkpoint is damaged.
    """
    config = read_config(path)
    checkpoints = CheckpointDirectory(path / CHECKPOINTS, config.checkpoint.keep)
    damaged: list[int] = []
    for step in reversed(checkpoints.steps()):
        try:
            facts = open_chain(checkpoints.of_step(step))[-1].facts
        except DataLossError:
            damaged.append(step)
            continue
        tables = tuple(
            InspectedTable(
                name, t["size"], t["layout"]["width"], t["layout"]["line_bytes"], t["digest"]
            )
            for name, t in facts["tables"].items()
        )
        about = {
            "name": config.name,
            "model": config.model.arch,
            **facts["position"],
            "checkpoints": len(checkpoints.steps()),
            "damaged_checkpoints": damaged,
        }
        return Inspection("run", str(path), about, tables)
    if damaged:
        raise DataLossError(f"{path}: all {len(damaged)} checkpoints are damaged")
    raise FailedPreconditionError(f"{path} has no checkpoint yet; train it first")
