"""Trains a model as its configuration says, into a run directory."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from hotrow.config import RunConfig, refuse_unbuilt
from hotrow.errors import FailedPreconditionError, HotrowError, OutOfRangeError
from hotrow.ops.ranks import LONE, Ranks
from hotrow.trainer.agreement import agreed, gathered, of_first
from hotrow.trainer.checkpoint import Position, Restored
from hotrow.trainer.checkpoint.environment import differences
from hotrow.trainer.checkpoint.random_state import restore_random_state
from hotrow.trainer.checkpoint.transfer import transfer
from hotrow.trainer.checkpoint.variable_files import path_of
from hotrow.trainer.checkpoint.writer import CheckpointWriter
from hotrow.trainer.data import BatchStream, Part
from hotrow.trainer.data.row_progress import RowProgress
from hotrow.trainer.determinism import op_determinism
from hotrow.trainer.early_stopping import EarlyStopping
from hotrow.trainer.equal_variables import spread_variables
from hotrow.trainer.evaluation import evaluate_file
from hotrow.trainer.expected_steps import expected_steps
from hotrow.trainer.features import STANDARDIZE_ROWS
from hotrow.trainer.metrics import BinaryMetrics, Quality
from hotrow.trainer.model_inputs import ModelInputs, model_inputs
from hotrow.trainer.models import Ranker, build_model
from hotrow.trainer.models.split import Split
from hotrow.trainer.next_item import NextItem, NextTwo
from hotrow.trainer.prefetch import prefetch
from hotrow.trainer.rank_rules import check_ranks
from hotrow.trainer.rank_stages import stages_of_all
from hotrow.trainer.read_ahead import read_ahead
from hotrow.trainer.row_movement import RowMovement
from hotrow.trainer.run_directory import RunDirectory, read_config
from hotrow.trainer.run_log import RunLog
from hotrow.trainer.run_opening import agreed_source, checked_data, open_directory, split_of
from hotrow.trainer.source_run import SourceRun, read_source
from hotrow.trainer.speed import Speed
from hotrow.trainer.start_rules import (
    tables_with_another_filter,
    tables_with_other_keys,
)
from hotrow.trainer.step_report import StepReport, exchange
from hotrow.trainer.stop_request import StopRequest
from hotrow.trainer.table_metrics import cache_of_all, statistics_of_all, watched_tables
from hotrow.trainer.train_result import TrainResult
from hotrow.trainer.train_step import (
    from_op_error,
    make_forward,
    make_optimizer,
    make_train_step,
)
from hotrow.trainer.warm_up import warm_up

Floats = npt.NDArray[np.float32]
Batch = tuple[Floats, Floats | None, int, ModelInputs]
"""Labels float32 [B], weights of the rows float32 [B], rows of the batch of all ranks, inputs."""


def train(
    config: RunConfig,
    run_dir: Path | None = None,
    resume: bool = False,
    ranks: Ranks = LONE,
    *,
    start_from: Path | None = None,
    force: bool = False,
) -> TrainResult:
    """Trains until the configured end and returns what came out.

    Equal configuration, seed, data and number of TensorFlow's threads give the same tables,
    weights and metrics bit for bit, also when the run was interrupted and resumed. With
    `parallel.staleness` that holds only for runs that save, evaluate and stop at the same steps,
    and not for resumed ones: replicas are not saved.

    Args:
        config: what to train.
        run_dir: the directory to write; None: a new one, `runs/<name>-<time>`.
        resume: continue the run in `run_dir` from its newest undamaged checkpoint.
        ranks: those that train as one; each calls this with the same arguments. Rank 0 writes the
            run directory and reports on the run; all return the same metrics.
        start_from: a run directory, or a checkpoint of one: the new run starts from its tables,
            weights and optimizer state. Steps go on counting; epochs, data and metrics start anew.
        force: drop the tables and weights of `start_from` that do not fit.

    Raises:
        UnimplementedError: the configuration needs a part that is not built yet.
        NotFoundError: a data file, or the run to resume, does not exist.
        AlreadyExistsError: `run_dir` holds a run and `resume` is false.
        InvalidArgumentError: the resumed run had another configuration, that of `start_from` one
            that does not fit, or columns are missing.
        DataError: a data file is malformed.
        DataLossError: every checkpoint of the run is damaged.
        FailedPreconditionError: the loss became NaN or infinite, or another process trains there.
        HotrowError: the last checkpoint cannot be written, or another rank failed.
        KeyboardInterrupt: on SIGINT, after a checkpoint was written.
        SystemExit: on SIGTERM, after a checkpoint was written.
    """
    refuse_unbuilt(config)
    try:
        check_ranks(config, ranks)
        config = agreed(ranks, "data files", partial(checked_data, config))
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
            # All can still finish the checkpoint that is being written.
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
        self.log = RunLog(directory, quiet=not ranks.is_first)
        self.model: Ranker = build_model(config, split)
        self.optimizer = make_optimizer(config.optimizer, self.model)
        self.step = make_train_step(self.model, self.optimizer, config, ranks)
        self.forward = make_forward(self.model, config)
        self.position = Position()
        self.checkpoints = CheckpointWriter(
            directory.checkpoints,
            config.checkpoint,
            self.model,
            self.optimizer,
            self.log.say,
            ranks,
        )
        self.speed = Speed()
        self.metrics = BinaryMetrics()
        self.early_stopping = EarlyStopping(config)
        self.valid: Quality | None = None
        self.valid_step = -1
        self.movement: RowMovement | None = None  # watched in the first steps of a new model
        self.stopping: int | None = None  # the signal that all ranks stop for

    def train(self, resume: bool) -> TrainResult:
        self._start(resume)
        if not self._at_end() and self.position.epoch < self.config.train.epochs:
            warm_up(self.model, self.config, self.position.batch, self.ranks)
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
        self._report_training()
        self._last_checkpoint()
        self._validate()
        return self._result()

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
        """Takes what another run has trained; returns whether dense columns must be measured."""
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
        self.position = restored.position
        self.metrics.set_state(restored.metrics)
        self.early_stopping.set_state(restored.metrics)
        if self.ranks.is_first:
            self._note_restored_best()
        restore_random_state(restored.random)
        self.checkpoints.continue_from(restored.position, restored.lineage)
        self.log.continue_from(self.position.step)
        if self.ranks.size > 1:
            self.log.logged = of_first(self.ranks, "measurements", self.log.logged)
        self.log.say(f"resuming {self.directory.path} at step {self.position.step}")
        differs = differences(restored.environment, self.ranks.size)
        if differs and self.config.train.deterministic:
            self.log.say(f"the last bits may differ from an uninterrupted run: {differs}")

    def _note_restored_best(self) -> None:
        """Notes the best checkpoint as of the restored step: a later one will be made again."""
        best, checkpoints = self.early_stopping.best, self.directory.checkpoints
        is_there = best is not None and checkpoints.of_step(best.step).exists()
        checkpoints.note_best(best if is_there else None)

    def _measured(self) -> dict[str, npt.NDArray[np.generic]]:
        """Returns what checkpoints hold of training metrics and validations."""
        return {**self.metrics.state(), **self.early_stopping.state()}

    def _at_end(self) -> bool:
        if self.early_stopping.is_enough:
            return True
        bound = self.config.train.max_steps
        return bound is not None and self.position.step - self.first_step >= bound

    def _epoch(self, epoch: int, stop: StopRequest) -> None:
        """Trains from the position to the end of the epoch, of the run, or a stop request."""
        if self.position.batch == 0:
            self.metrics = BinaryMetrics()
        stream = BatchStream(
            self.config.data.train,
            self.config,
            shuffle_seed=self.config.seed if self.config.train.shuffle else None,
            start_batch=self.position.batch,
            epoch=epoch,
            part=Part(self.ranks.rank, self.ranks.size),
        )
        self.speed.restart()
        cache = self.config.cache
        window = 0 if cache.as_spec() is None else cache.prefetch
        # Tensors are made in the reading thread, too.
        with contextlib.closing(read_ahead(lambda: _with_inputs(stream))) as batches:
            coming: NextItem[Batch] | NextTwo[Batch]
            if self.ranks.size > 1:
                coming = NextTwo(batches)
                self._begin_together(coming)
            else:
                coming = NextItem(prefetch(batches, window, self._prefetch))
                coming.fetch()
            while coming.item is not None:
                self._train_batch(coming.item, coming, stop)
                if self.stopping is not None or self._at_end():
                    return
                if isinstance(coming, NextItem):
                    coming.fetch()
        if stream.malformed.count:
            found = stream.malformed
            self.log.say(f"epoch {epoch + 1}: left out of {found.path}: {found}")
        self._report_training()
        self._validate()
        self.position = Position(self.position.step, epoch + 1, 0)

    def _prefetch(self, window: list[Batch]) -> None:
        # A key that is out of range is for the step that meets it to report.
        with contextlib.suppress(OutOfRangeError):
            self.model.prefetch(inputs for *_, inputs in window)

    def _begin_together(self, coming: NextTwo[Batch]) -> None:
        """Learns that all ranks have a first batch, or none, and hands over what all have."""
        none = np.zeros(0, np.float32)
        own = StepReport(none, none, 0, None, False, False, False, False)
        if self.config.data.weight is not None:
            own = replace(own, weights=none)
        done = self._exchange(own, coming, self.position.step, coming.item)
        if done.failure is not None:
            raise done.failure

    def _train_batch(
        self, batch: Batch, coming: NextItem[Batch] | NextTwo[Batch], stop: StopRequest
    ) -> None:
        labels, weights, rows, inputs = batch
        number = self.position.step + 1
        try:
            logits = self.step(inputs, labels, rows, weights).numpy()
        except tf.errors.OpError as err:
            raise from_op_error(err, f"step {number}") from err
        due = self.log.step_done(), self.checkpoints.due(number)
        done = StepReport(labels, logits, rows, stop.number, False, False, *due, weights=weights)
        if isinstance(coming, NextTwo):
            coming.fetch()
            done = self._exchange(done, coming, number)
        if not np.isfinite(done.logits).all():
            error = FailedPreconditionError(
                f"the model's output is no longer finite at step {number}; lower "
                "optimizer.learning_rate or the tables' learning_rate, or check the dense columns"
            )
            error.on_all_ranks = self.ranks.size > 1  # all look at the outputs of all
            raise error
        self.has_begun = True
        self.metrics.update(done.labels, done.logits, done.weights)
        at = self.position
        self.position = Position(number, at.epoch, at.batch + 1)
        self.speed.lap(rows)
        self._watch_rows(number)
        if done.report:
            self._report_training()
        every = self.config.train.eval_every_steps
        if every is not None and self.position.step % every == 0:
            self._report_training()
            self._validate()
        self._log_checkpoints()
        if done.checkpoint:
            self.model.push_all()
            self.checkpoints.begin(self.position, self._measured)
        self.stopping = stop.number if self.ranks.size == 1 else done.stop
        if done.failure is not None and self.stopping is None and not self._at_end():
            raise done.failure
        self.speed.restart()

    def _watch_rows(self, number: int) -> None:
        """Warns once if the first steps of a new model hardly move its rows."""
        if self.ranks.size > 1:  # a lookup of rows is a step of all ranks
            return
        if number == 1:
            self.movement = RowMovement(self.model.tables(), number)
        elif self.movement is not None and number == self.movement.end:
            warning = self.movement.warning()
            self.movement = None
            if warning is not None:
                self.log.say(warning)

    def _exchange(
        self, own: StepReport, coming: NextTwo[Batch], number: int, first: Batch | None = None
    ) -> StepReport:
        """Returns a step as all ranks report it, and hands over the keys of batches that all have.

        Args:
            own: this rank's.
            coming: the batches after the step.
            number: of the step.
            first: the next batch, if it was not handed over yet.
        """
        own = replace(
            own,
            is_last=coming.item is None,
            has_two=coming.after is not None,
            writing=self.checkpoints.report(),
            failure=coming.failure,
        )
        done = exchange(self.ranks, own, number)
        self.checkpoints.receive(done.writing)
        # All ranks or none: what is handed over travels in the next step.
        ahead = self.config.cache.prefetch > 0 and done.failure is None
        if first is not None and ahead:
            self._prefetch([first])
        if coming.after is not None and done.has_two and ahead:
            self._prefetch([coming.after])
        return done

    def _receive_stop(self, stop: StopRequest) -> None:
        """Learns whether a rank was asked to stop since the last step."""
        if self.ranks.size == 1:
            self.stopping = stop.number
        elif self.stopping is None:
            numbers = gathered(self.ranks, "stop requests", stop.number)
            self.stopping = next((number for number in numbers if number is not None), None)

    def _report_training(self) -> None:
        """Reports the epoch's progressive quality, unless this step was reported already."""
        tables, step = self.model.tables(), self.position.step
        if self.log.logged["train"] == step == self.log.logged["tables"]:
            return
        statistics = statistics_of_all(tables, self.ranks)
        counted = watched_tables(tables, statistics)
        if counted and self.log.logged["tables"] != step:
            metrics = {
                f"{t}/{key}": n for t, counts in counted.items() for key, n in counts.items()
            }
            self.log.append("tables", self.position, metrics)
        if self.log.logged["train"] == step:
            return
        cache = cache_of_all(tables, statistics)
        speed = self.speed.samples_per_second()
        self.log.training(self.position, self.metrics.result(), speed, cache)
        if self.ranks.size > 1:
            stages = stages_of_all(self.ranks)
            metrics = {f"{s}/{key}": n for s, counts in stages.items() for key, n in counts.items()}
            self.log.append("ranks", self.position, metrics)

    def _validate(self) -> None:
        """Measures the validation file, if there is one and this step was not measured yet."""
        path = self.config.data.valid
        if path is None or self.valid_step == self.position.step:
            return
        self.model.push_all()
        rows = None if self.valid is None else self.valid.rows
        with RowProgress("validated", rows, passing=True, enabled=self.ranks.is_first) as progress:
            self.valid = evaluate_file(self.forward, self.config, path, self.ranks, progress)
        self.valid_step = self.position.step
        self.log.validation(self.position, self.valid)
        if self.early_stopping.observe(self.position.step, self.valid):
            best = self.early_stopping.best
            assert best is not None
            self.checkpoints.begin_best(best, self.position, self._measured)
        if self.early_stopping.is_enough:
            self.log.say(self._why_enough())

    def _why_enough(self) -> str:
        best = self.early_stopping.best
        assert best is not None
        return (
            f"early stopping at step {self.position.step}: the best {best.metric} is "
            f"{best.value:.4f} at step {best.step}"
        )

    def _last_checkpoint(self) -> None:
        """Returns once the checkpoint of this step is on the disk."""
        self.model.push_all()
        try:
            self.checkpoints.finish(self.position, self._measured)
        finally:
            self._log_checkpoints()

    def _log_checkpoints(self) -> None:
        for outcome in self.checkpoints.outcomes():
            if outcome.failure is None:
                self.log.append("checkpoint", outcome.position, outcome.metrics())

    def _leave(self, signal_number: int) -> None:
        line = (
            f"stopped at step {self.position.step}, checkpoint written; continue with --resume "
            f"--run-dir {self.directory.path}"
        )
        if signal_number == signal.SIGINT:
            raise _Interrupted(line)
        self.log.say(line)
        raise _Terminated(128 + signal_number)

    def _result(self) -> TrainResult:
        tables = self.model.tables()
        statistics = statistics_of_all(tables, self.ranks)
        return TrainResult(
            run_dir=self.directory.path,
            steps=self.position.step,
            first_step=self.first_step,
            best=self.directory.checkpoints.best(),
            samples_per_second=self.speed.samples_per_second(),
            train=self.metrics.result(),
            valid=self.valid,
            rows={name: counts["rows"] for name, counts in statistics.items()},
            tables=watched_tables(tables, statistics),
            ranks=self.ranks.size,
            stages=stages_of_all(self.ranks),
        )


def _with_inputs(stream: BatchStream) -> Iterator[Batch]:
    """Yields labels, weights, rows and inputs; what else a batch holds may go."""
    for batch in stream:
        assert batch.labels is not None  # BatchStream requires labels
        yield batch.labels, batch.weights, batch.global_size, model_inputs(batch)
