"""Trains a model as its configuration says, into a run directory."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from hotrow.config import RunConfig, refuse_unbuilt
from hotrow.errors import FailedPreconditionError, OutOfRangeError
from hotrow.trainer.checkpoint import Position, Restored
from hotrow.trainer.checkpoint.environment import differences
from hotrow.trainer.checkpoint.random_state import restore_random_state
from hotrow.trainer.checkpoint.writer import CheckpointWriter
from hotrow.trainer.data import BatchStream, open_data
from hotrow.trainer.determinism import op_determinism
from hotrow.trainer.evaluation import evaluate_file
from hotrow.trainer.event_log import EventLog
from hotrow.trainer.features import STANDARDIZE_ROWS
from hotrow.trainer.look_ahead import look_ahead
from hotrow.trainer.metrics import BinaryMetrics, Quality
from hotrow.trainer.model_inputs import ModelInputs, model_inputs
from hotrow.trainer.models import Ranker, build_model
from hotrow.trainer.progress import Progress
from hotrow.trainer.read_ahead import read_ahead
from hotrow.trainer.run_directory import (
    EVENTS,
    RunDirectory,
    default_run_directory,
    read_metrics,
)
from hotrow.trainer.speed import Speed
from hotrow.trainer.stop_request import StopRequest
from hotrow.trainer.table_figures import cache_of_all, watched_tables
from hotrow.trainer.train_result import TrainResult
from hotrow.trainer.train_step import (
    from_op_error,
    make_forward,
    make_optimizer,
    make_train_step,
)
from hotrow.trainer.warm_up import warm_up

Floats = npt.NDArray[np.float32]


def train(config: RunConfig, run_dir: Path | None = None, resume: bool = False) -> TrainResult:
    """Trains until the configured end and returns what came out.

    Equal configuration, seed, data and number of TensorFlow's threads give the same tables,
    weights and metrics bit for bit, also when the run was interrupted and resumed.

    Args:
        config: what to train.
        run_dir: the directory to write; None: a new one, `runs/<name>-<time>`.
        resume: continue the run in `run_dir` from its newest undamaged checkpoint.

    Raises:
        UnimplementedError: the configuration needs a part that is not built yet.
        NotFoundError: a data file, or the run to resume, does not exist.
        AlreadyExistsError: `run_dir` holds a run and `resume` is false.
        InvalidArgumentError: the resumed run had another configuration, or columns are missing.
        DataError: a data file is malformed.
        DataLossError: every checkpoint of the run is damaged.
        FailedPreconditionError: the loss became NaN or infinite, or another process trains there.
        HotrowError: the last checkpoint cannot be written.
        KeyboardInterrupt: on SIGINT, after a checkpoint was written.
        SystemExit: on SIGTERM, after a checkpoint was written.
    """
    refuse_unbuilt(config)
    _check_data(config)
    if run_dir is None:
        run_dir = default_run_directory(config.name)
    directory = (RunDirectory.reopen if resume else RunDirectory.create)(run_dir, config)
    with contextlib.closing(directory), op_determinism(config.train.deterministic):
        run = _Run(config, directory)
        try:
            return run.train(resume)
        except KeyboardInterrupt:
            run.checkpoints.close(abandon=True)
            raise
        finally:
            run.close()


def _check_data(config: RunConfig) -> None:
    """Opens the data files, so that a mistake shows before anything is written."""
    config.data.require_files()
    for path in (config.data.train, config.data.valid):
        if path is not None:
            data = open_data(path, config.data, config.features, require_labels=True)
            next(iter(data.raw_batches(1)))  # a file without rows ends here


class _Run:
    """The state of one call of `train`."""

    def __init__(self, config: RunConfig, directory: RunDirectory) -> None:
        self.config = config
        self.directory = directory
        self.model: Ranker = build_model(config)
        self.optimizer = make_optimizer(config.optimizer, self.model)
        self.step = make_train_step(self.model, self.optimizer, config)
        self.forward = make_forward(self.model, config)
        self.position = Position()
        self.checkpoints = CheckpointWriter(
            directory.checkpoints, config.checkpoint, self.model, self.optimizer, self._say
        )
        self.events = EventLog(directory.path / EVENTS)
        self.progress: Progress | None = None
        self.speed = Speed()
        self.metrics = BinaryMetrics()
        self.valid: Quality | None = None
        self.valid_step = -1
        # The last step of each kind that metrics.jsonl has.
        self.logged = {"train": -1, "valid": -1, "tables": -1}

    def train(self, resume: bool) -> TrainResult:
        self._start(resume)
        if not self._at_end() and self.position.epoch < self.config.train.epochs:
            warm_up(self.model, self.config, self.position.batch)
        self.progress = Progress(self.position.step)
        with StopRequest() as stop:
            for epoch in range(self.position.epoch, self.config.train.epochs):
                if self._at_end():
                    break
                self._epoch(epoch, stop)
                if stop.number is not None:
                    self._last_checkpoint()
                    self._leave(stop.number)
        self._report_training()
        self._last_checkpoint()
        self._validate()
        return self._result()

    def close(self) -> None:
        self.checkpoints.close()
        self.events.close()
        if self.progress is not None:
            self.progress.close()

    def _start(self, resume: bool) -> None:
        if resume:
            restored = self.directory.checkpoints.restore_newest(
                self.model, self.optimizer, report=self._say
            )
            if restored is not None:
                self._continue_from(restored)
                return
            self._say(f"no checkpoint in {self.directory.path}, starting over")
            self.directory.truncate_metrics(-1)
        if self.model.preprocess.needs_statistics:
            rows = BatchStream(self.config.data.train, self.config, limit=STANDARDIZE_ROWS)
            self.model.preprocess.adapt(np.concatenate([batch.dense for batch in rows]))

    def _continue_from(self, restored: Restored) -> None:
        self.position = restored.position
        self.metrics.set_state(restored.metrics)
        restore_random_state(restored.random)
        self.checkpoints.continue_from(restored.position, restored.lineage)
        self.directory.truncate_metrics(self.position.step)
        for record in read_metrics(self.directory.path):
            self.logged[record["kind"]] = record["step"]
        self._say(f"resuming {self.directory.path} at step {self.position.step}")
        differs = differences(restored.environment)
        if differs and self.config.train.deterministic:
            self._say(f"the last bits may differ from an uninterrupted run: {differs}")

    def _at_end(self) -> bool:
        bound = self.config.train.max_steps
        return bound is not None and self.position.step >= bound

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
        )
        self.speed.restart()
        cache = self.config.cache
        window = 0 if cache.as_spec() is None else cache.lookahead
        # Tensors are made in the reading thread, too.
        with contextlib.closing(read_ahead(lambda: _with_inputs(stream))) as batches:
            for labels, inputs in look_ahead(batches, window, self._look_ahead):
                self._train_batch(labels, inputs)
                if stop.number is not None or self._at_end():
                    return
        if stream.malformed.count:
            self._say(
                f"epoch {epoch + 1}: {stream.malformed.count} malformed lines skipped, the first "
                f"is line {stream.malformed.first_line} of {self.config.data.train}"
            )
        self._report_training()
        self._validate()
        self.position = Position(self.position.step, epoch + 1, 0)

    def _look_ahead(self, window: list[tuple[Floats, ModelInputs]]) -> None:
        # A key that is out of range is for the step that meets it to report.
        with contextlib.suppress(OutOfRangeError):
            self.model.look_ahead(inputs["sparse"] for _, inputs in window)

    def _train_batch(self, labels: Floats, inputs: ModelInputs) -> None:
        try:
            logits = self.step(inputs, labels).numpy()
        except tf.errors.OpError as err:
            raise from_op_error(err, f"step {self.position.step + 1}") from err
        if not np.isfinite(logits).all():
            raise FailedPreconditionError(
                f"the model's output is no longer finite at step {self.position.step + 1}; lower "
                "optimizer.learning_rate or the tables' learning_rate, or check the dense columns"
            )
        self.metrics.update(labels, logits)
        at = self.position
        self.position = Position(at.step + 1, at.epoch, at.batch + 1)
        self.speed.lap(len(labels))
        assert self.progress is not None
        if self.progress.step_done():
            self._report_training()
        every = self.config.train.eval_every_steps
        if every is not None and self.position.step % every == 0:
            self._report_training()
            self._validate()
        self._log_checkpoints()
        if self.checkpoints.due(self.position.step):
            self.checkpoints.begin(self.position, self.metrics.state)
        self.speed.restart()

    def _report_training(self) -> None:
        """Reports the epoch's progressive quality, unless this step was reported already."""
        counted = watched_tables(self.model.tables())
        if counted and self.logged["tables"] != self.position.step:
            figures = {f"{t}/{key}": n for t, told in counted.items() for key, n in told.items()}
            self._append("tables", self.position, figures)
        if self.logged["train"] == self.position.step:
            return
        quality, speed = self.metrics.result(), self.speed.samples_per_second()
        if self.progress is not None:
            cache = cache_of_all(self.model.tables())
            at = self.position
            self.progress.report_training(at.step, at.epoch, quality, speed, cache)
        self._log("train", quality, {"samples_per_second": speed})

    def _validate(self) -> None:
        """Measures the validation file, if there is one and this step was not measured yet."""
        path = self.config.data.valid
        if path is None or self.valid_step == self.position.step:
            return
        self.valid = evaluate_file(self.forward, self.config, path)
        self.valid_step = self.position.step
        if self.progress is not None:
            self.progress.report_validation(self.position.step, self.valid)
        if self.logged["valid"] != self.position.step:
            self._log("valid", self.valid, {})

    def _log(self, kind: str, quality: Quality, more: dict[str, float]) -> None:
        self._append(kind, self.position, {**asdict(quality), **more})

    def _append(self, kind: str, position: Position, values: dict[str, Any]) -> None:
        self.logged[kind] = position.step
        at = {"kind": kind, "step": position.step, "epoch": position.epoch, "time": time.time()}
        numbers = {
            f"{kind}/{key}": value
            for key, value in values.items()
            if not isinstance(value, str) and math.isfinite(value)
        }
        try:
            self.directory.append_metrics({**at, **values})
            self.events.write(position.step, numbers)
        except (OSError, tf.errors.OpError) as err:
            self._say(
                f"figures ({kind}) of step {position.step} are not written: {err}; training goes on"
            )

    def _last_checkpoint(self) -> None:
        """Returns once the checkpoint of this step is on the disk."""
        try:
            self.checkpoints.finish(self.position, self.metrics.state)
        finally:
            self._log_checkpoints()

    def _log_checkpoints(self) -> None:
        for outcome in self.checkpoints.outcomes():
            if outcome.failure is None:
                self._append("checkpoint", outcome.position, outcome.figures())

    def _leave(self, signal_number: int) -> None:
        line = (
            f"stopped at step {self.position.step}, checkpoint written; continue with --resume "
            f"--run-dir {self.directory.path}"
        )
        if signal_number == signal.SIGINT:
            raise KeyboardInterrupt(line)
        self._say(line)
        raise SystemExit(128 + signal_number)

    def _say(self, line: str) -> None:
        if self.progress is not None:
            self.progress.say(line)
        else:
            print(line, file=sys.stderr)

    def _result(self) -> TrainResult:
        return TrainResult(
            run_dir=self.directory.path,
            steps=self.position.step,
            samples_per_second=self.speed.samples_per_second(),
            train=self.metrics.result(),
            valid=self.valid,
            rows={name: table.size for name, table in self.model.tables().items()},
            tables=watched_tables(self.model.tables()),
        )


def _with_inputs(stream: BatchStream) -> Iterator[tuple[Floats, ModelInputs]]:
    """Yields labels float32 [B] and inputs; what else a batch holds may go."""
    for batch in stream:
        assert batch.labels is not None  # BatchStream requires labels
        yield batch.labels, model_inputs(batch)
