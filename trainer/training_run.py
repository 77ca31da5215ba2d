"""The state of a run in training: model, optimizer, checkpoints and reports, step by step."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from hotrow.config import RunConfig
from hotrow.errors import FailedPreconditionError, OutOfRangeError
from hotrow.trainer.agreement import agreed, of_first
from hotrow.trainer.batch_feed import Batch, Floats, StepFeed
from hotrow.trainer.checkpoint import Position, Restored
from hotrow.trainer.checkpoint.environment import differences
from hotrow.trainer.checkpoint.outcome import Outcome
from hotrow.trainer.checkpoint.position import Online
from hotrow.trainer.checkpoint.random_state import restore_random_state
from hotrow.trainer.checkpoint.transfer import transfer
from hotrow.trainer.checkpoint.variable_files import path_of
from hotrow.trainer.checkpoint.writer import CheckpointWriter
from hotrow.trainer.data import BatchStream
from hotrow.trainer.equal_variables import spread_variables
from hotrow.trainer.features import STANDARDIZE_ROWS
from hotrow.trainer.metrics import EXACT_ROWS
from hotrow.trainer.models import Ranker, build_model
from hotrow.trainer.models.split import Split
from hotrow.trainer.reporting import Reporting
from hotrow.trainer.run_directory import CHECKPOINTS, RunDirectory, read_config
from hotrow.trainer.source_run import SourceRun
from hotrow.trainer.start_rules import (
    tables_with_another_filter,
    tables_with_other_keys,
)
from hotrow.trainer.step_report import StepReport
from hotrow.trainer.stop_request import StopRequest
from hotrow.trainer.train_result import TrainResult
from hotrow.trainer.train_step import (
    from_op_error,
    make_optimizer,
    make_train_step,
)


class Interrupted(KeyboardInterrupt):
    """All ranks stopped because of SIGINT."""


class Terminated(SystemExit):
    """All ranks stopped because of SIGTERM."""


class TrainingRun:
    """The state of one call of `train`, on one rank; subclasses say which batches come.

    The methods are collectives if there are several ranks.

    Attributes:
        exact_rows: up to so many rows the AUC of training is exact.
    """

    exact_rows = EXACT_ROWS

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        split: Split,
        source: SourceRun | None = None,
    ) -> None:
        self.config = config
        self.directory = directory
        self.source = source
        self.first_step = 0 if source is None else source.step
        self.has_begun = False
        self.ranks = ranks = split.ranks
        self.model: Ranker = build_model(config, split)
        self.optimizer = make_optimizer(config.optimizer, self.model)
        self.step = make_train_step(self.model, self.optimizer, config, ranks)
        self.reporting = Reporting(config, directory, self.model, ranks, self.exact_rows)
        self.log = self.reporting.log
        self.position = Position()
        self.checkpoints = CheckpointWriter(
            directory.checkpoints,
            config.checkpoint,
            self.model,
            self.optimizer,
            self.log.say,
            ranks,
            None if source is None else Path(source.run) / CHECKPOINTS,
        )
        self.stopping: int | None = None  # the signal that all ranks stop for

    def train(self, resume: bool) -> TrainResult:
        """Trains until the end and returns the result.

        Args:
            resume: whether to continue from the newest checkpoint.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Ends the checkpoint that is being written, and closes the log."""
        self.checkpoints.close()
        self.log.close()

    def start(self, resume: bool) -> None:
        """Restores the newest checkpoint or the run to start from, or begins anew."""
        if resume:
            restored = self.directory.checkpoints.restore_newest(
                self.model, self.optimizer, report=self.log.say, ranks=self.ranks
            )
            if restored is not None:
                self._continue_from(restored)
                return
            self.log.say(f"no checkpoint in {self.directory.path}, starting over")
            self.log.start_over()
        needs_statistics = self.model.preprocess.needs_statistics
        if self.source is not None:
            needs_statistics = self._start_from(self.source) and needs_statistics
        if needs_statistics:
            agreed(self.ranks, "statistics of dense columns", self._measure_dense)
        spread_variables([*self.model.dense_variables(), *self.optimizer.variables], self.ranks)

    def _start_from(self, source: SourceRun) -> bool:
        """Restores the state of another run; returns whether dense columns must be measured."""
        chain = agreed(
            self.ranks, "checks of a checkpoint", lambda: source.open(thorough=self.ranks.is_first)
        )
        before = read_config(Path(source.run))
        taken = transfer(
            chain,
            self.model,
            self.optimizer,
            self.log.say,
            other_keys=tables_with_other_keys(before, self.config),
            other_filter=tables_with_another_filter(before, self.config),
            force=source.force,
            ranks=self.ranks,
        )
        self.position = Position(taken.step)
        self.checkpoints.start_from(taken.step, taken.lineage)
        self.log.say(f"starting from {source.run} at step {taken.step}")
        if not taken.lineage.starts:
            self.log.say(f"incremental exports do not go on from those of {source.run}")
        own = self.model.preprocess
        return own.mean is None or path_of(own.mean) not in taken.dense

    def _measure_dense(self) -> None:
        if self.ranks.is_first:
            rows = BatchStream(self.config.data.train, self.config, limit=STANDARDIZE_ROWS)
            self.model.preprocess.adapt(np.concatenate([batch.dense for batch in rows]))

    def _continue_from(self, restored: Restored) -> None:
        self.has_begun = True
        self.position = self._at_these_ranks(restored)
        self.reporting.set_state(restored.metrics)
        if self.ranks.is_first:
            self._note_restored_best()
        restore_random_state(restored.random)
        self.checkpoints.continue_from(restored.position, restored.lineage)
        self.log.continue_from(self.position.step)
        self.log.logged = of_first(self.ranks, "measurements", self.log.logged)
        self.log.say(f"resuming {self.directory.path} at step {self.position.step}")
        differs = differences(restored.environment, self.ranks.size)
        if differs and self.config.train.deterministic:
            self.log.say(f"the last bits may differ from an uninterrupted run: {differs}")

    def _at_these_ranks(self, restored: Restored) -> Position:
        written = restored.environment.get("ranks", 1)  # older checkpoints are from one rank
        if self.config.data.order == "exact" or written == self.ranks.size:
            return restored.position
        return restored.position.after(written)

    def _note_restored_best(self) -> None:
        """Sets the best checkpoint to that of the restored step: later ones will be made again."""
        best, checkpoints = self.reporting.early_stopping.best, self.directory.checkpoints
        is_there = best is not None and checkpoints.of_step(best.step).exists()
        checkpoints.note_best(best if is_there else None)

    def at_end(self) -> bool:
        """Returns whether the run has all its steps, or stops early."""
        if self.reporting.early_stopping.is_enough:
            return True
        bound = self.config.train.max_steps
        return bound is not None and self.position.step - self.first_step >= bound

    def _prefetch(self, window: list[Batch]) -> None:
        # The step that reads an out-of-range key reports it.
        with contextlib.suppress(OutOfRangeError):
            self.model.prefetch(batch.inputs for batch in window)

    def own_report(
        self, labels: Floats, logits: Floats, weights: Floats | None, rows: int, **facts: Any
    ) -> StepReport:
        """Returns this rank's report of a step; see `StepReport`."""
        return StepReport(
            labels, logits, rows, weights=weights, writing=self.checkpoints.report(), **facts
        )

    def train_batch(
        self, batch: Batch, feed: StepFeed, stop: StopRequest, online: Online | None = None
    ) -> None:
        """Trains on a batch; reports, and takes a checkpoint, when these are due.

        Args:
            batch: this rank's part of the batch.
            feed: whence it came.
            stop: signals received so far.
            online: position in a source of events after the batch; None: it is from files.
        """
        labels, weights, rows, inputs, first = batch
        number = self.position.step + 1
        try:
            logits = self.step(inputs, labels, rows, weights, first).numpy()
        except tf.errors.OpError as err:
            raise from_op_error(err, f"step {number}") from err
        own = self.own_report(
            labels,
            logits,
            weights,
            rows,
            stop=stop.number,
            report=self.log.step_done(),
            checkpoint=self.checkpoints.due(number),
        )
        done = feed.end_step(own, number)
        self.checkpoints.receive(done.writing)
        if not np.isfinite(done.logits).all():
            error = FailedPreconditionError(
                f"the model's output is no longer finite at step {number}; lower "
                "optimizer.learning_rate or the tables' learning_rate, or check the dense columns"
            )
            error.on_all_ranks = True  # all ranks check the outputs of all
            raise error
        self.has_begun = True
        at = self.position
        self.position = replace(at, step=number, batch=at.batch + 1, online=online)
        self.reporting.end_step(done, number)
        self.note_step(done)
        if done.report:
            self.reporting.training(self.position)
        every = self.config.train.eval_every_steps
        if every is not None and self.position.step % every == 0:
            self.reporting.training(self.position)
            self.validate()
        self.note_outcomes(self.checkpoints.outcomes())
        if done.checkpoint:
            self.model.push_all()
            self.checkpoints.begin(self.position, self.reporting.state)
        self.stopping = feed.stop(done, stop)
        if done.failure is not None and self.stopping is None and not self.at_end():
            raise done.failure
        self.reporting.start_step()

    def note_step(self, done: StepReport) -> None:
        """Is called with the report of each step, by all ranks together."""

    def note_outcomes(self, outcomes: list[Outcome]) -> None:
        """Is called with the outcomes of checkpoints."""
        self.reporting.checkpoints(outcomes)

    def validate(self) -> None:
        """Reports a validation, if one is due; the best one gets a checkpoint."""
        best = self.reporting.validation(self.position)
        if best is not None:
            self.checkpoints.begin_best(best, self.position, self.reporting.state)

    def last_checkpoint(self) -> None:
        """Returns once the checkpoint of this step is on the disk."""
        self.model.push_all()
        try:
            self.checkpoints.finish(self.position, self.reporting.state)
        finally:
            self.note_outcomes(self.checkpoints.outcomes())

    def leave(self, signal_number: int) -> None:
        """Ends the run because of a signal, after its last checkpoint.

        Raises:
            Interrupted: on SIGINT.
            Terminated: on other signals.
        """
        line = (
            f"stopped at step {self.position.step}, checkpoint written; continue with --resume "
            f"--run-dir {self.directory.path}"
        )
        if signal_number == signal.SIGINT:
            raise Interrupted(line)
        self.log.say(line)
        raise Terminated(128 + signal_number)
