"""Trains a model as its configuration says, into a run directory."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from hotrow.config import RunConfig, refuse_unbuilt
from hotrow.errors import FailedPreconditionError, HotrowError, OutOfRangeError
from hotrow.ops.ranks import LONE, Ranks
from hotrow.trainer.agreement import agreed, gathered, of_first
from hotrow.trainer.batch_feed import Batch, BatchFeed, Floats, RankFeed, WindowFeed, with_inputs
from hotrow.trainer.checkpoint import Position, Restored
from hotrow.trainer.checkpoint.environment import differences
from hotrow.trainer.checkpoint.random_state import restore_random_state
from hotrow.trainer.checkpoint.transfer import transfer
from hotrow.trainer.checkpoint.variable_files import path_of
from hotrow.trainer.checkpoint.writer import CheckpointWriter
from hotrow.trainer.data import BatchStream
from hotrow.trainer.data.sharded_stream import ShardedStream
from hotrow.trainer.determinism import op_determinism
from hotrow.trainer.epoch_stream import epoch_stream, left_out
from hotrow.trainer.equal_variables import spread_variables
from hotrow.trainer.expected_steps import expected_steps
from hotrow.trainer.features import STANDARDIZE_ROWS
from hotrow.trainer.models import Ranker, build_model
from hotrow.trainer.models.split import Split
from hotrow.trainer.rank_rules import check_ranks
from hotrow.trainer.read_ahead import read_ahead
from hotrow.trainer.reporting import Reporting
from hotrow.trainer.run_directory import CHECKPOINTS, RunDirectory, read_config
from hotrow.trainer.run_opening import agreed_data, agreed_source, open_directory, split_of
from hotrow.trainer.source_run import SourceRun, read_source
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
from hotrow.trainer.warm_up import warm_up


def train(
    config: RunConfig,
    run_dir: Path | None = None,
    resume: bool = False,
    ranks: Ranks = LONE,
    *,
    start_from: Path | None = None,
    force: bool = False,
) -> TrainResult:
    """Trains until the configured end and returns the result.

    Equal configuration, seed, data and number of TensorFlow's threads give the same tables, weights
    and metrics bit for bit, also when the run was interrupted and resumed. With
    `parallel.staleness` this holds only for runs that save, evaluate and stop at the same steps,
    and not for resumed runs: checkpoints do not contain replicas.

    Args:
        config: the run's configuration.
        run_dir: the directory to write; None: a new one, `runs/<name>-<time>`.
        resume: continue the run in `run_dir` from its newest undamaged checkpoint.
        ranks: the ranks that train together; each makes this call with the same arguments. Rank 0
            writes the run directory and reports on the run; all return the same metrics.
        start_from: a run directory, or a checkpoint of one: the new run starts from its tables,
            weights and optimizer state. Steps continue; epochs, data and metrics start new.
        force: drop the tables and weights of `start_from` that do not fit.

    Raises:
        UnimplementedError: the configuration needs a part that is not built yet.
        NotFoundError: a data file, or the run to resume, does not exist.
        AlreadyExistsError: `run_dir` holds a run and `resume` is false.
        InvalidArgumentError: the resumed run had another configuration, the configuration of
            `start_from` does not fit, or columns are missing.
        DataError: a data file is malformed.
        DataLossError: every checkpoint of the run is damaged.
        FailedPreconditionError: outputs, dense weights or too many updates of a table's rows are
            not finite; the data differ, or another process trains.
        HotrowError: the last checkpoint cannot be written, or another rank failed.
        KeyboardInterrupt: on SIGINT, after a checkpoint was written.
        SystemExit: on SIGTERM, after a checkpoint was written.
    """
    refuse_unbuilt(config)
    try:
        check_ranks(config, ranks)
        config = agreed_data(config, ranks)
        source = None
        if start_from is not None:
            source = agreed_source(config, start_from, force, ranks)
        directory = open_directory(config, run_dir, resume, source, ranks)
        with contextlib.closing(directory), op_determinism(config.train.deterministic):
            return _train(config, directory, resume, ranks)
    except (_Interrupted, _Terminated):
        raise  # all ranks stop after this step
    except BaseException as err:
        if not (isinstance(err, HotrowError) and err.on_all_ranks):
            ranks.fail(err)
        raise


def _train(config: RunConfig, directory: RunDirectory, resume: bool, ranks: Ranks) -> TrainResult:
    run: _Run | None = None
    try:
        source = agreed(ranks, "start of the run", lambda: read_source(directory.path))
        run = _Run(config, directory, split_of(config, directory, resume, ranks), source)
        return run.train(resume)
    except KeyboardInterrupt:
        if run is not None:
            run.checkpoints.close(abandon=True)
        raise
    except HotrowError as err:
        if run is not None and err.on_all_ranks:
            # All ranks can still finish the checkpoint that is being written.
            with contextlib.suppress(HotrowError):
                run.checkpoints.settle()
        raise
    finally:
        if run is not None:
            run.close()
        if run is None or not run.has_begun:
            directory.discard()


class _Interrupted(KeyboardInterrupt):
    """All ranks stopped because of SIGINT."""


class _Terminated(SystemExit):
    """All ranks stopped because of SIGTERM."""


class _Run:
    """The state of one call of `train`, on one rank."""

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
        self.reporting = Reporting(config, directory, self.model, ranks)
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
        self._start(resume)
        if not self._at_end() and self.position.epoch < self.config.train.epochs:
            warm_up(self.model, self.config, self.position, self.ranks)
        total = self.first_step + expected_steps(self.config)
        self.log.start_steps(self.position.step, total)
        with StopRequest() as stop:
            for epoch in range(self.position.epoch, self.config.train.epochs):
                if self._at_end():
                    break
                self._epoch(epoch, stop)
                self._receive_stop(stop)
                if self.stopping is not None:
                    self._last_checkpoint()
                    self._leave(self.stopping)
        self.has_begun = True
        self.reporting.training(self.position)
        self._last_checkpoint()
        self._validate()
        return self.reporting.result(self.position, self.first_step)

    def close(self) -> None:
        self.checkpoints.close()
        self.log.close()

    def _start(self, resume: bool) -> None:
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

    def _at_end(self) -> bool:
        if self.reporting.early_stopping.is_enough:
            return True
        bound = self.config.train.max_steps
        return bound is not None and self.position.step - self.first_step >= bound

    def _epoch(self, epoch: int, stop: StopRequest) -> None:
        """Trains from the current position to the end of the epoch or run, or to a stop request."""
        config, ranks = self.config, self.ranks
        stream = epoch_stream(config, ranks, self.position, shuffle=config.train.shuffle)
        self.reporting.start_epoch(self.position)
        # The reading thread also makes the tensors.
        with contextlib.closing(read_ahead(lambda: with_inputs(stream))) as batches:
            feed = self._feed(batches, isinstance(stream, ShardedStream))
            none = np.zeros(0, np.float32)
            weights = none if config.data.weight is not None else None
            begun = feed.begin(self._own_report(none, none, weights, 0), self.position.step)
            self.checkpoints.receive(begun.writing)
            if begun.failure is not None:
                raise begun.failure
            while feed.item is not None:
                self._train_batch(feed.item, feed, stop)
                if self.stopping is not None or self._at_end():
                    return
                feed.advance()
        found = left_out(stream, config, ranks)
        if found.count:
            self.log.say(f"epoch {epoch + 1}: left out of {found.path}: {found}")
        self.reporting.training(self.position)
        self._validate()
        self.position = Position(self.position.step, epoch + 1, 0)

    def _prefetch(self, window: list[Batch]) -> None:
        # The step that reads an out-of-range key reports it.
        with contextlib.suppress(OutOfRangeError):
            self.model.prefetch(batch.inputs for batch in window)

    def _feed(self, batches: Iterable[Batch], sharded: bool) -> BatchFeed:
        cache = self.config.cache
        if self.ranks.size > 1:
            return RankFeed(batches, cache.prefetch > 0, self._prefetch, self.ranks, sharded)
        return WindowFeed(batches, 0 if cache.as_spec() is None else cache.prefetch, self._prefetch)

    def _own_report(
        self, labels: Floats, logits: Floats, weights: Floats | None, rows: int, **facts: Any
    ) -> StepReport:
        return StepReport(
            labels, logits, rows, weights=weights, writing=self.checkpoints.report(), **facts
        )

    def _train_batch(self, batch: Batch, feed: BatchFeed, stop: StopRequest) -> None:
        labels, weights, rows, inputs, first = batch
        number = self.position.step + 1
        try:
            logits = self.step(inputs, labels, rows, weights, first).numpy()
        except tf.errors.OpError as err:
            raise from_op_error(err, f"step {number}") from err
        own = self._own_report(
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
        self.position = replace(at, step=number, batch=at.batch + 1)
        self.reporting.end_step(done, number)
        if done.report:
            self.reporting.training(self.position)
        every = self.config.train.eval_every_steps
        if every is not None and self.position.step % every == 0:
            self.reporting.training(self.position)
            self._validate()
        self.reporting.checkpoints(self.checkpoints.outcomes())
        if done.checkpoint:
            self.model.push_all()
            self.checkpoints.begin(self.position, self.reporting.state)
        self.stopping = feed.stop(done, stop)
        if done.failure is not None and self.stopping is None and not self._at_end():
            raise done.failure
        self.reporting.start_step()

    def _receive_stop(self, stop: StopRequest) -> None:
        """Checks whether any rank got a stop request since the last step."""
        if self.stopping is None:
            numbers = gathered(self.ranks, "stop requests", stop.number)
            self.stopping = next((number for number in numbers if number is not None), None)

    def _validate(self) -> None:
        """Reports a validation, if one is due; the best one gets a checkpoint."""
        best = self.reporting.validation(self.position)
        if best is not None:
            self.checkpoints.begin_best(best, self.position, self.reporting.state)

    def _last_checkpoint(self) -> None:
        """Returns once the checkpoint of this step is on the disk."""
        self.model.push_all()
        try:
            self.checkpoints.finish(self.position, self.reporting.state)
        finally:
            self.reporting.checkpoints(self.checkpoints.outcomes())

    def _leave(self, signal_number: int) -> None:
        line = (
            f"stopped at step {self.position.step}, checkpoint written; continue with --resume "
            f"--run-dir {self.directory.path}"
        )
        if signal_number == signal.SIGINT:
            raise _Interrupted(line)
        self.log.say(line)
        raise _Terminated(128 + signal_number)
