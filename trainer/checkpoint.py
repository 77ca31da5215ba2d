"""Checkpoints of a run: all tables, the dense part, its optimizer and the position in the data.

`checkpoints/step-00005000/` is a sealed directory (see `sealed_directory`): it appears whole, and
is checked whole before anything is restored from it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.sealed_directory import MANIFEST, read_sealed, remove_leftovers, sealing
from hotrow.trainer.table_files import read_table, write_table
from hotrow.trainer.variable_files import read_variables, write_variables

if TYPE_CHECKING:
    from hotrow.trainer.models import Ranker

FORMAT = 1
_PREFIX = "step-"
_MODEL, _OPTIMIZER, _TABLES = "model.safetensors", "optimizer.safetensors", "tables"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a run is.

    Attributes:
        step: training steps done.
        epoch: the pass over the training file that the next batch belongs to, from 0.
        batch: batches of that pass that are done.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0


class CheckpointDirectory:
    """The checkpoints of one run, the newest `keep` of them.

    One process writes at a time; the run directory's lock sees to that.
    """

    def __init__(self, path: Path, keep: int) -> None:
        """Names the directory; `write` makes it."""
        self.path = path
        self._keep = keep

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, good or damaged, oldest first."""
        names = (path.name.removeprefix(_PREFIX) for path in self.path.glob(f"{_PREFIX}*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def of_step(self, step: int) -> Path:
        """Returns where the checkpoint of a step is, or would be."""
        return self.path / f"{_PREFIX}{step:08d}"

    def write(self, model: Ranker, optimizer: Any, position: Position) -> Path:
        """Writes a checkpoint, removes those beyond `keep` and returns its directory.

        An undamaged checkpoint of the same step stays as it is: a run reaches a step in one state.

        Args:
            model: nobody trains it meanwhile.
            optimizer: the Keras optimizer of the dense part, built.
            position: where the run stands.

        Raises:
            HotrowError: the disk is full or refuses; the older checkpoints stay.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.path)
        final = self.of_step(position.step)
        if final.exists():
            try:
                read_sealed(final)
                return final
            except DataLossError:
                shutil.rmtree(final)
        facts: dict[str, Any] = {"format": FORMAT, "position": asdict(position), "tables": {}}
        with sealing(final, facts) as directory:
            (directory / _TABLES).mkdir()
            for name, table in model.tables().items():
                facts["tables"][name] = write_table(table, directory / _TABLES)
            write_variables(model.dense_variables(), directory / _MODEL)
            write_variables(optimizer.variables, directory / _OPTIMIZER)
        for step in self.steps()[: -self._keep]:
            shutil.rmtree(self.of_step(step))
        return final

    def restore_newest(
        self, model: Ranker, optimizer: Any | None, report: Callable[[str], None]
    ) -> Position | None:
        """Restores the newest checkpoint that is undamaged and returns its position.

        Args:
            model: made from the same configuration; its tables and weights are replaced.
            optimizer: its variables are replaced; None: they are not needed.
            report: gets one line for each damaged checkpoint that is passed over.

        Returns:
            None if there is no checkpoint at all.

        Raises:
            DataLossError: there are checkpoints, and every one is damaged.
            FailedPreconditionError: a checkpoint is of another configuration.
        """
        steps = self.steps()
        for step in reversed(steps):
            try:
                return _restore(self.of_step(step), model, optimizer)
            except DataLossError as err:
                report(f"checkpoint of step {step} is not usable, trying the one before: {err}")
        if steps:
            raise DataLossError(
                f"no usable checkpoint in {self.path}: all {len(steps)} are damaged; start a new "
                "run"
            )
        return None


def _restore(directory: Path, model: Ranker, optimizer: Any | None) -> Position:
    facts = read_sealed(directory)
    if facts.get("format") != FORMAT:
        raise DataLossError(
            f"{directory / MANIFEST} has format {facts.get('format')!r}, this version of Hotrow "
            f"reads {FORMAT}"
        )
    tables, entries = model.tables(), facts["tables"]
    if tables.keys() != entries.keys():
        raise FailedPreconditionError(
            f"{directory} has the tables {', '.join(entries)}, the model {', '.join(tables)}; use "
            "the configuration of the run"
        )
    for name, table in tables.items():
        read_table(table, directory / _TABLES, entries[name])
    read_variables(model.dense_variables(), directory / _MODEL)
    if optimizer is not None:
        read_variables(optimizer.variables, directory / _OPTIMIZER)
    return Position(**facts["position"])
