"""Writes checkpoints while training runs: a snapshot between two steps, the files in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotrow.config import CheckpointConfig
from hotrow.errors import DataLossError, FailedPreconditionError, HotrowError
from hotrow.lineage import Lineage
from hotrow.ops.ranks import LONE, Ranks
from hotrow.sealed_directory import read_manifest, seal_of
from hotrow.trainer.agreement import agreed, of_first
from hotrow.trainer.checkpoint.array_file import Arrays
from hotrow.trainer.checkpoint.directory import Best, CheckpointDirectory
from hotrow.trainer.checkpoint.export_tombstones import ExportTombstones
from hotrow.trainer.checkpoint.finite_variables import check_finite
from hotrow.trainer.checkpoint.lone_write import LoneWrite
from hotrow.trainer.checkpoint.outcome import Outcome
from hotrow.trainer.checkpoint.position import Position
from hotrow.trainer.checkpoint.shared_write import SharedWrite
from hotrow.trainer.checkpoint.snapshot import TrainingSnapshot
from hotrow.trainer.checkpoint.stored import FULL, INCREMENT, name_of
from hotrow.trainer.checkpoint.write import Write

if TYPE_CHECKING:
    from hotrow.trainer.models import Ranker


class CheckpointWriter:
    """Decides when a checkpoint is due, takes its snapshot, and writes it while training continues.

    It writes one checkpoint at a time; one that falls due meanwhile is skipped. A checkpoint that
    cannot be written is reported once, and earlier ones stay; only the last one of a run must
    succeed.

    Only the training thread may call the methods.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        config: CheckpointConfig,
        model: Ranker,
        optimizer: Any,
        report: Callable[[str], None],
        ranks: Ranks = LONE,
        source: Path | None = None,
    ) -> None:
        """Stores its arguments; writes nothing yet.

        Args:
            directory: where checkpoints go; no other process writes there.
            config: when and how to write.
            model: checkpoints hold its tables and weights.
            optimizer: the Keras optimizer of the dense part, built.
            report: called with a line for each checkpoint that is skipped or fails.
            ranks: the ranks that train the model. With several, `begin` and `finish` are
                collectives, and the results of `report` must reach all ranks by `receive` after
                each step.
            source: the folder of checkpoints of the run that this one started from; None: none.
        """
        self._directory = directory
        self._config = config
        self._model = model
        self._optimizer = optimizer
        self._report = report
        self._ranks = ranks
        self._running: Write | None = None
        self._outcomes: list[Outcome] = []
        self._skipped_for = -1  # the step whose write caused a skip
        self._begun = time.monotonic()
        self._saved: int | None = None  # the step of the newest good checkpoint
        self._chain: list[tuple[str, str]] = []  # (name, seal) of what an increment builds on
        self._lineage = Lineage().started(0)
        self._said_nonfinite: dict[str, int] = {}
        self._tombstones = ExportTombstones(directory.path, model.tables(), report, ranks, source)

    @property
    def saved(self) -> int | None:
        """The step of the newest checkpoint that is on the disk; None: there is none."""
        return self._saved

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._running is not None

    @property
    def lineage(self) -> Lineage:
        """Lineage of the run."""
        return self._lineage

    def continue_from(self, position: Position, lineage: Lineage) -> None:
        """Notes that the run continues from its newest good checkpoint, just restored.

        The next checkpoint is full: this process tracks changed rows only since checkpoints that it
        has written itself.

        Args:
            position: position of that checkpoint.
            lineage: lineage of that checkpoint.
        """
        self._saved = position.step
        self._lineage = lineage.started(position.step)
        self._tombstones.update()

    def start_from(self, step: int, lineage: Lineage) -> None:
        """Notes that the run starts from a checkpoint of another run, and has none of its own yet.

        Args:
            step: step of that checkpoint.
            lineage: lineage of that checkpoint; empty: rows were dropped.
        """
        self._lineage = lineage.started(step)
        self._tombstones.update()

    def due(self, step: int) -> bool:
        """Returns whether a checkpoint is due after this step."""
        seconds = self._config.every_seconds
        return step % self._config.every_steps == 0 or (
            seconds is not None and time.monotonic() - self._begun >= seconds
        )

    def report(self) -> dict[str, Any] | None:
        """Returns this rank's report to the others about the write, as a JSON value."""
        return None if self._running is None else self._running.report()

    def receive(self, reports: list[Any]) -> None:
        """Receives the reports of all ranks after a step.

        Args:
            reports: the results of `report` on each rank.
        """
        if self._running is not None:
            self._running.receive(reports)

    def begin(self, position: Position, metrics: Callable[[], Arrays]) -> None:
        """Takes a checkpoint and returns while it is being written, or skips it.

        Args:
            position: position of the run.
            metrics: returns the metrics of the epoch so far.

        Raises:
            FailedPreconditionError: the dense part is not finite; on all ranks.
        """
        self._collect()
        if self._running is not None:
            self._skip(position.step, self._running)
        elif self._saved != position.step:
            self._start(position, metrics, last=False)
            if not self._config.asynchronous:
                self._wait()

    def begin_best(self, best: Best, position: Position, metrics: Callable[[], Arrays]) -> None:
        """Takes the checkpoint of the best validation so far; it is never skipped.

        It is recorded as the best once it is on the disk; until then the previous best one stays.

        Args:
            best: the validation of this step.
            position: position of the run.
            metrics: returns the metrics of the epoch so far.

        Raises:
            FailedPreconditionError: the dense part is not finite; on all ranks.
        """
        self._collect()
        self._directory.awaited_best = best
        if self._running is not None and self._running.step != best.step:
            self._wait()
            self._directory.awaited_best = best
        if self._saved == best.step:
            self._note_best(best)
        elif self._running is None:
            self._start(position, metrics, last=False)
            if not self._config.asynchronous:
                self._wait()

    def outcomes(self) -> list[Outcome]:
        """Returns the outcomes of checkpoints since the last call."""
        self._collect()
        found, self._outcomes = self._outcomes, []
        return found

    def finish(self, position: Position, metrics: Callable[[], Arrays]) -> None:
        """Waits for the checkpoint that is being written, then writes one at `position`.

        Raises:
            HotrowError: it cannot be written; earlier ones stay.
        """
        self._wait()
        if self._saved == position.step:
            return
        self._start(position, metrics, last=True)
        self._wait()
        if self._saved != position.step:
            failure = self._outcomes[-1].failure
            assert failure is not None
            raise type(failure)(f"{_not_written(position.step, failure)}; {self._left()}")

    def settle(self) -> None:
        """Waits for the checkpoint that is being written, if any. A collective on several ranks."""
        self._wait()

    def close(self, abandon: bool = False) -> None:
        """Ends the write.

        Args:
            abandon: abandon the checkpoint that is being written instead of waiting for it.
        """
        if self._running is not None:
            self._running.close(abandon)
            self._wait()

    def _left(self) -> str:
        if self._saved is None:
            return "there is no other checkpoint"
        return f"the checkpoint of step {self._saved} stays"

    def _start(self, position: Position, metrics: Callable[[], Arrays], last: bool) -> None:
        self._check_finite(position.step)
        self._tombstones.update()
        kind, chain = self._kind()
        take = partial(
            TrainingSnapshot,
            self._model,
            self._optimizer,
            position,
            metrics(),
            kind,
            idle=last,
            lineage=self._lineage,
            ranks=self._ranks,
        )
        keeps = self._config.full_every > 1
        begin = SharedWrite if self._ranks.size > 1 else LoneWrite
        try:
            self._running = begin(
                self._directory, take, position.step, chain, keeps, last, self._ranks
            )
        except HotrowError as err:
            if not err.on_all_ranks:
                raise  # all ranks end: not only this checkpoint failed
            self._failed(Outcome(position, kind, 0, 0.0, 0.0, err), last)
        self._begun = time.monotonic()

    def _check_finite(self, step: int) -> None:
        variables = [*self._model.dense_variables(), *self._optimizer.variables]
        try:
            agreed(self._ranks, "dense part", lambda: check_finite(variables, step, self._left()))
        except FailedPreconditionError as err:
            err.on_all_ranks = True  # `agreed` raises it on all
            raise

    def _kind(self) -> tuple[str, list[tuple[str, str]]]:
        """Returns the next checkpoint's kind, and what it builds on; the same on all ranks."""
        below = self._chain
        if not 0 < len(below) < self._config.full_every:
            return FULL, []
        # One rank decides: the ranks may see different files on the disk at this moment.
        kind = self._kind_on(below) if self._ranks.is_first else None
        kind = of_first(self._ranks, "kind of the checkpoint", kind)
        return (INCREMENT, below) if kind == INCREMENT else (FULL, [])

    def _kind_on(self, below: list[tuple[str, str]]) -> str:
        """Returns the next checkpoint's kind; an increment needs unchanged checkpoints below it."""
        for name, seal in below:
            try:
                found = seal_of(read_manifest(self._directory.path / name))
            except DataLossError:
                found = ""
            if found != seal:
                return FULL
        return INCREMENT

    def _skip(self, step: int, running: Write) -> None:
        if self._skipped_for != running.step:
            self._skipped_for = running.step
            self._report(
                f"checkpoint of step {step} skipped: that of step {running.step} is still being "
                "written; raise checkpoint.every_steps if this goes on"
            )

    def _collect(self) -> None:
        if self._running is not None and self._running.over:
            self._wait()

    def _wait(self) -> None:
        """Waits for the checkpoint that is being written, if any, and stores its outcome."""
        write = self._running
        if write is None:
            return
        begin = time.monotonic()
        write.wait()
        self._running = None  # after the wait: a second Ctrl-C may interrupt it
        waited = time.monotonic() - begin if not self._config.asynchronous else 0.0
        outcome = write.outcome(waited)
        if outcome is not None:
            self._take(write, outcome)

    def _take(self, write: Write, outcome: Outcome) -> None:
        if outcome.failure is not None:
            self._failed(outcome, write.last)
            return
        self._saved = outcome.position.step
        self._say_nonfinite(outcome)
        if self._config.full_every > 1:
            self._chain = [*write.chain, (name_of(write.step), write.seal)]
        self._outcomes.append(outcome)
        best = self._directory.awaited_best
        if best is not None and best.step == self._saved:
            self._note_best(best)

    def _say_nonfinite(self, outcome: Outcome) -> None:
        """Reports rows that are not finite, unless the last report said the same."""
        found = outcome.nonfinite_rows
        if found and found != self._said_nonfinite:
            self._said_nonfinite = found
            tables = ", ".join(f"{rows:,} of table {name!r}" for name, rows in found.items())
            self._report(
                f"checkpoint of step {outcome.position.step}: rows that hold a NaN or an "
                f"infinity: {tables}; see `platform inspect`"
            )

    def _note_best(self, best: Best) -> None:
        self._directory.awaited_best = None
        if not self._ranks.is_first:
            return
        try:
            self._directory.note_best(best)
        except OSError as err:
            self._report(f"step {best.step} is not noted as the best: {err}; training goes on")
        self._directory.prune(best.step)

    def _failed(self, outcome: Outcome, last: bool) -> None:
        self._outcomes.append(outcome)
        if last:
            return  # finish() raises it
        line = _not_written(outcome.position.step, outcome.failure)
        self._report(f"{line}; {self._left()}, training goes on")


def _not_written(step: int, failure: HotrowError | None) -> str:
    return f"checkpoint of step {step} is not written: {failure}"
