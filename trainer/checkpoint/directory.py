"""The checkpoints of one run: which exist, which are kept, and where a run continues.

`checkpoints/step-00005000/` is a sealed directory (see `hotrow.sealed_directory`): it becomes
visible as a whole, and all of it is checked before a restoration reads it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotrow.atomic_text import write_atomically
from hotrow.errors import DataLossError, FailedPreconditionError
from hotrow.ops.ranks import LONE, Ranks
from hotrow.sealed_directory import discard
from hotrow.trainer.agreement import agreed
from hotrow.trainer.checkpoint.exported import exported_steps
from hotrow.trainer.checkpoint.restore import Restored, restore
from hotrow.trainer.checkpoint.stored import StoredCheckpoint, name_of, open_chain, step_of

if TYPE_CHECKING:
    from hotrow.trainer.models import Ranker


BEST = "best.json"
"""Names the best checkpoint, beside the checkpoints."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best checkpoint of a run by a metric of its validation file.

    Attributes:
        step: step of the checkpoint.
        metric: "auc" or "logloss".
        value: value of the metric.
    """

    step: int
    metric: str
    value: float


class CheckpointDirectory:
    """The checkpoints of one run: the newest `keep`, the best, and those that they build on.

    One process writes at a time; the run directory's lock ensures this.

    Attributes:
        awaited_best: the best checkpoint, while it is being written.
    """

    def __init__(self, path: Path, keep: int) -> None:
        """Sets the directory; the first checkpoint creates it."""
        self.path = path
        self._keep = keep
        self.awaited_best: Best | None = None
        self._damaged: set[int] = set()  # found by a restoration

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, good or damaged, oldest first."""
        found = (step_of(path.name) for path in self.path.glob("step-*"))
        return sorted(step for step in found if step is not None)

    def of_step(self, step: int) -> Path:
        """Returns the path of a step's checkpoint, whether it exists or not."""
        return self.path / name_of(step)

    def prune(self, written: int) -> None:
        """Removes checkpoints that no restoration needs.

        It keeps the best, the `keep` newest usable ones, and those that they build on. It also
        keeps the last exported ones, so that a full export can use them again. A checkpoint that a
        restoration found damaged is not usable; others are judged by the sizes of their files. If
        the disk refuses to remove one, it stays.

        Args:
            written: step of the checkpoint that was just written.
        """
        self._damaged.discard(written)
        needed: set[str] = set()
        for best in (self._noted_best(), self.awaited_best):
            if best is not None:
                with contextlib.suppress(DataLossError, FailedPreconditionError):
                    chain = open_chain(self.of_step(best.step), thorough=False)
                    needed.update(checkpoint.path.name for checkpoint in chain)
        kept = 0
        for step in reversed(self.steps()):
            if kept == self._keep:
                break
            if step in self._damaged:
                continue
            with contextlib.suppress(DataLossError, FailedPreconditionError):
                chain = open_chain(self.of_step(step), thorough=False)
                needed.update(checkpoint.path.name for checkpoint in chain)
                kept += 1
        for step in exported_steps(self.path):
            with contextlib.suppress(DataLossError, FailedPreconditionError):
                chain = open_chain(self.of_step(step), thorough=False)
                needed.update(checkpoint.path.name for checkpoint in chain)
        # The newest first: an increment never outlives the checkpoints that it builds on.
        for step in reversed(self.steps()):
            if name_of(step) not in needed:
                with contextlib.suppress(OSError):
                    discard(self.of_step(step))

    def newest(self, report: Callable[[str], None]) -> list[StoredCheckpoint]:
        """Returns the newest undamaged checkpoint, after those that it builds on.

        Args:
            report: called with one line for each damaged checkpoint that is skipped.

        Returns:
            An empty list if there is no checkpoint at all.

        Raises:
            DataLossError: there are checkpoints, and every one is damaged.
            FailedPreconditionError: a checkpoint has another format.
        """
        return self._first_good(open_chain, report) or []

    def chosen(self, report: Callable[[str], None]) -> list[StoredCheckpoint]:
        """Returns the checkpoint that represents the run, after those that it builds on.

        It is the best one, if the run keeps one and it is undamaged; otherwise the newest undamaged
        one.

        Args:
            report: called with one line for each damaged checkpoint that is skipped.

        Returns:
            An empty list if there is no checkpoint at all.

        Raises:
            DataLossError: there are checkpoints, and every one is damaged.
            FailedPreconditionError: a checkpoint has another format.
        """
        return self._first_good(open_chain, report, self.best()) or []

    def best(self) -> Best | None:
        """Returns the best checkpoint; None: the run keeps none, or it no longer exists.

        Raises:
            DataLossError: the file that names it is damaged.
        """
        path = self.path / BEST
        try:
            found = Best(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, TypeError, ValueError) as err:
            raise DataLossError(f"{path} is damaged: {err}") from err
        return found if self.of_step(found.step).exists() else None

    def note_best(self, best: Best | None) -> None:
        """Writes to disk which checkpoint is the best; None: there is none.

        Raises:
            OSError: the disk is full or refuses.
        """
        self.awaited_best = None
        path = self.path / BEST
        if best is None:
            path.unlink(missing_ok=True)
            return
        write_atomically(path, json.dumps(asdict(best)) + "\n")

    def restore_newest(
        self,
        model: Ranker,
        optimizer: Any | None,
        report: Callable[[str], None],
        ranks: Ranks = LONE,
        prefer_best: bool = False,
    ) -> Restored | None:
        """Restores the newest undamaged checkpoint; returns its remaining contents.

        It finds damage in a checkpoint, or in one that it builds on, before it restores any of it.
        If the restored rows differ from the written ones, it empties the tables.

        Args:
            model: made from the same configuration; its tables and weights are replaced.
            optimizer: its variables are replaced; None: they are not needed.
            report: called with one line for each damaged checkpoint that is skipped.
            ranks: the ranks that train the model; each restores its own rows. A collective.
            prefer_best: restore the best one, if the run keeps one and it is undamaged.

        Returns:
            None if there is no checkpoint at all.

        Raises:
            DataLossError: there are checkpoints, and every one is damaged.
            FailedPreconditionError: a checkpoint has another configuration or format.
        """

        def attempt(path: Path) -> Restored:
            # Every rank reads all files that it needs; one rank checks that they are whole.
            chain = agreed(
                ranks, "checks of a checkpoint", lambda: open_chain(path, thorough=ranks.is_first)
            )
            return restore(chain, model, optimizer, report, ranks)

        return self._first_good(attempt, report, self.best() if prefer_best else None)

    def _noted_best(self) -> Best | None:
        with contextlib.suppress(DataLossError):
            return self.best()
        return None

    def _first_good(
        self,
        attempt: Callable[[Path], Any],
        report: Callable[[str], None],
        best: Best | None = None,
    ) -> Any | None:
        steps = self.steps()
        if best is not None:  # before the others
            steps = [*(step for step in steps if step != best.step), best.step]
        for step in reversed(steps):
            try:
                return attempt(self.of_step(step))
            except DataLossError as err:
                self._damaged.add(step)
                report(f"checkpoint of step {step} is not usable, trying the one before: {err}")
        if steps:
            raise DataLossError(
                f"no usable checkpoint in {self.path}: all {len(steps)} are damaged; start a new "
                "run"
            )
        return None
