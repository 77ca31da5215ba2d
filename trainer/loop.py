"""Trains a model as its configuration says, into a run directory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hotrow.config import RunConfig
from hotrow.errors import HotrowError, InvalidArgumentError
from hotrow.ops.ranks import LONE, Ranks
from hotrow.store.access import StoreAccess
from hotrow.trainer.agreement import agreed, gathered
from hotrow.trainer.batch_feed import Batch, BatchFeed, RankFeed, WindowFeed, with_inputs
from hotrow.trainer.checkpoint import Position
from hotrow.trainer.data.sharded_stream import ShardedStream
from hotrow.trainer.determinism import op_determinism
from hotrow.trainer.epoch_stream import epoch_stream, left_out
from hotrow.trainer.expected_steps import expected_steps
from hotrow.trainer.models.split import Split
from hotrow.trainer.rank_rules import check_ranks
from hotrow.trainer.read_ahead import read_ahead
from hotrow.trainer.run_directory import RunDirectory
from hotrow.trainer.run_opening import agreed_data, agreed_source, open_directory, split_of
from hotrow.trainer.source_run import SourceRun, read_source
from hotrow.trainer.stop_request import StopRequest
from hotrow.trainer.train_result import TrainResult
from hotrow.trainer.training_run import Interrupted, Terminated, TrainingRun
from hotrow.trainer.warm_up import warm_up

if TYPE_CHECKING:
    from hotrow.trainer.online.canary_servers import ServerScores


def train(
    config: RunConfig,
    run_dir: Path | None = None,
    resume: bool = False,
    ranks: Ranks = LONE,
    *,
    start_from: Path | None = None,
    force: bool = False,
    online: bool = False,
    access: StoreAccess = StoreAccess(),  # noqa: B008 (frozen)
    server_scores: ServerScores | None = None,
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
        online: train on the events of `online.source` instead of `data.train`, until the source
            ends or a signal comes, and publish to servers.
        access: credentials for the stores of events and rows.
        server_scores: asks a server for its scores of `online.canary`; None: none is asked.

    Raises:
        UnimplementedError: a table is split by columns over ranks, and `online` publishes.
        FencedError: another process publishes the model.
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
    if online and config.online.source is None:
        raise InvalidArgumentError(
            "--online: online.source is not set; give the URL of the events (online.source)"
        )
    try:
        check_ranks(config, ranks)
        config = agreed_data(config, ranks)
        source = None
        if start_from is not None:
            source = agreed_source(config, start_from, force, ranks)
        directory = open_directory(config, run_dir, resume, source, ranks)
        with contextlib.closing(directory), op_determinism(config.train.deterministic):
            if not online:
                return _train(config, directory, resume, ranks, EpochRun)
            # Imported only here: it needs gRPC, and stores.
            from hotrow.trainer.online.run import OnlineRun

            make = partial(OnlineRun, access=access, server_scores=server_scores)
            return _train(config, directory, resume, ranks, make)
    except (Interrupted, Terminated):
        raise  # all ranks stop after this step
    except BaseException as err:
        if not (isinstance(err, HotrowError) and err.on_all_ranks):
            ranks.fail(err)
        raise


def _train(
    config: RunConfig,
    directory: RunDirectory,
    resume: bool,
    ranks: Ranks,
    make: Callable[[RunConfig, RunDirectory, Split, SourceRun | None], TrainingRun],
) -> TrainResult:
    run: TrainingRun | None = None
    try:
        source = agreed(ranks, "start of the run", lambda: read_source(directory.path))
        split = split_of(config, directory, resume, ranks)
        run = make(config, directory, split, source)
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


class EpochRun(TrainingRun):
    """A run over data files, epoch by epoch."""

    def train(self, resume: bool) -> TrainResult:
        """Trains until the end and returns the result."""
        self.start(resume)
        if not self.at_end() and self.position.epoch < self.config.train.epochs:
            warm_up(self.model, self.config, self.position, self.ranks)
        total = self.first_step + expected_steps(self.config)
        self.log.start_steps(self.position.step, total)
        with StopRequest() as stop:
            for epoch in range(self.position.epoch, self.config.train.epochs):
                if self.at_end():
                    break
                self._epoch(epoch, stop)
                self._receive_stop(stop)
                if self.stopping is not None:
                    self.last_checkpoint()
                    self.leave(self.stopping)
        self.has_begun = True
        self.reporting.training(self.position)
        self.last_checkpoint()
        self.validate()
        return self.reporting.result(self.position, self.first_step)

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
            begun = feed.begin(self.own_report(none, none, weights, 0), self.position.step)
            self.checkpoints.receive(begun.writing)
            if begun.failure is not None:
                raise begun.failure
            while feed.item is not None:
                self.train_batch(feed.item, feed, stop)
                if self.stopping is not None or self.at_end():
                    return
                feed.advance()
        found = left_out(stream, config, ranks)
        if found.count:
            self.log.say(f"epoch {epoch + 1}: left out of {found.path}: {found}")
        self.reporting.training(self.position)
        self.validate()
        self.position = Position(self.position.step, epoch + 1, 0)

    def _feed(self, batches: Iterable[Batch], sharded: bool) -> BatchFeed:
        cache = self.config.cache
        if self.ranks.size > 1:
            return RankFeed(batches, cache.prefetch > 0, self._prefetch, self.ranks, sharded)
        return WindowFeed(batches, 0 if cache.as_spec() is None else cache.prefetch, self._prefetch)

    def _receive_stop(self, stop: StopRequest) -> None:
        """Checks whether any rank got a stop request since the last step."""
        if self.stopping is None:
            numbers = gathered(self.ranks, "stop requests", stop.number)
            self.stopping = next((number for number in numbers if number is not None), None)
