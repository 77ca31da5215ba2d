"""The checkpoints of one run: which there are, which stay, which one a run continues from.

`checkpoints/step-00005000/` is a sealed directory (see `hotrow.sealed_directory`): it appears
whole, and is checked whole before anything is restored from it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    """Which checkpoint of a run is the best on its validation file.

    Attributes:
        step: of the checkpoint.
        metric: "auc" or "logloss".
        value: of the metric.
    """

    step: int
    metric: str
    value: float


class CheckpointDirectory:
    """The checkpoints of one run: the newest `keep`, the best, and what those build on.

    One process writes at a time; the run directory's lock sees to that.

    Attributes:
        awaited_best: the best one, while it is being written.
    """

    def __init__(self, path: Path, keep: int) -> None:
        """Names the directory; the first checkpoint makes it."""
        self.path = path
        self._keep = keep
        self.awaited_best: Best | None = None
        self._damaged: set[int] = set()  # found so when something was restored

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, good or damaged, oldest first."""
        found = (step_of(path.name) for path in self.path.glob("step-*"))
        return sorted(step for step in found if step is not None)

    def of_step(self, step: int) -> Path:
        """Returns where the checkpoint of a step is, or would be."""
        return self.path / name_of(step)

    def prune(self, written: int) -> None:
        """Removes what is neither the best nor among the `keep` newest usable ones, nor below one.

        Those that were exported last stay, too, so that a full export can go back to them. What a
        restoration found damaged is not usable; of the others, files are judged by their
        sizes. What the disk refuses to remove stays.

        Args:
            written: the step of the checkpoint that was just written.
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
        # The newest first: an increment never outlives what it builds on.
        for step in reversed(self.steps()):
            if name_of(step) not in needed:
                with contextlib.suppress(OSError):
                    discard(self.of_step(step))

    def newest(self, report: Callable[[str], None]) -> list[StoredCheckpoint]:
        """Returns the newest checkpoint without any damage, after those that it builds on.

        Args:
            report: gets one line for each damaged checkpoint that is passed over.

        Returns:
            Nothing if there is no checkpoint at all.

        Raises:
            DataLossError: there are checkpoints, and every one is damaged.
            FailedPreconditionError: one is of another format.
        """
        return self._first_good(open_chain, report) or []

    def chosen(self, report: Callable[[str], None]) -> list[StoredCheckpoint]:
        """Returns the checkpoint that stands for the run, after those that it builds on.

        It is the best one, if the run keeps one and it is undamaged, else the newest undamaged.

        Args:
            report: gets one line for each damaged checkpoint that is passed over.

        Returns:
            Nothing if there is no checkpoint at all.

        Raises:
            DataLossError: there are checkpoints, and every one is damaged.
            FailedPreconditionError: one is of another format.
        """
        return self._first_good(open_chain, report, self.best()) or []

    def best(self) -> Best | None:
        """Returns which checkpoint is the best; None: the run keeps none, or it is gone.

        Raises:
            DataLossError: the note is damaged.
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
        """Notes which checkpoint is the best, on the disk; None: there is none.

        Raises:
            OSError: the disk is full or refuses.
        """
        self.awaited_best = None
        path = self.path / BEST
        if best is None:
            path.unlink(missing_ok=True)
            return
        unfinished = path.with_name(f".{BEST}")
        unfinished.write_text(json.dumps(asdict(best)) + "\n", encoding="utf-8")
        unfinished.rename(path)

    def restore_newest(
        self,
        model: Ranker,
        optimizer: Any | None,
        report: Callable[[str], None],
        ranks: Ranks = LONE,
        prefer_best: bool = False,
    ) -> Restored | None:
        """Restores the newest checkpoint that is undamaged and returns what else it holds.

        A damaged one, or one that builds on a damaged one, is found before anything of it is
        restored. If the rows then are not those that were written, the tables are emptied.

        Args:
            model: made from the same configuration; its tables and weights are replaced.
            optimizer: its variables are replaced; None: they are not needed.
            report: gets one line for each damaged checkpoint that is passed over.
            ranks: that train as one; each restores the rows that it has. A collective.
            prefer_best: take the best one, if the run keeps one and it is undamaged.

        Returns:
            None if there is no checkpoint at all.

        Raises:
            DataLossError: there are checkpoints, and every one is damaged.
            FailedPreconditionError: a checkpoint is of another configuration or format.
        """

        def attempt(path: Path) -> Restored:
            # Every rank reads all files that it needs; that they are whole, one of them checks.
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
