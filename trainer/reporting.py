"""Measures and reports of a run: quality, speed, tables, validations."""

from __future__ import annotations

from hotrow.config import RunConfig
from hotrow.ops.ranks import Ranks
from hotrow.trainer import disk_rows
from hotrow.trainer.checkpoint import Position
from hotrow.trainer.checkpoint.array_file import Arrays
from hotrow.trainer.checkpoint.directory import Best
from hotrow.trainer.checkpoint.outcome import Outcome
from hotrow.trainer.data.row_progress import RowProgress
from hotrow.trainer.early_stopping import EarlyStopping
from hotrow.trainer.evaluation import evaluate_file
from hotrow.trainer.metrics import EXACT_ROWS, BinaryMetrics, Quality
from hotrow.trainer.models import Ranker
from hotrow.trainer.nonfinite_updates import NonfiniteUpdates
from hotrow.trainer.rank_stages import stages_of_all
from hotrow.trainer.row_movement import RowMovement
from hotrow.trainer.run_directory import RunDirectory
from hotrow.trainer.run_log import RunLog
from hotrow.trainer.speed import Speed
from hotrow.trainer.step_report import StepReport
from hotrow.trainer.table_metrics import (
    Metrics,
    cache_of_all,
    statistics_of_all,
    watched_tables,
)
from hotrow.trainer.train_result import TrainResult
from hotrow.trainer.train_step import make_forward


class Reporting:
    """The measurements and reports of one run, on one rank; rank 0 writes them.

    Attributes:
        log: lines, metrics.jsonl and TensorBoard.
        early_stopping: decides from validations whether the run ends.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        model: Ranker,
        ranks: Ranks,
        exact_rows: int = EXACT_ROWS,
    ) -> None:
        """Starts without measurements.

        Args:
            config: the run's configuration.
            directory: the run directory.
            model: the model.
            ranks: the ranks that train it.
            exact_rows: up to so many rows the AUC of training is exact; see `StreamingAuc`.
        """
        self.log = RunLog(directory, quiet=not ranks.is_first)
        self.early_stopping = EarlyStopping(config)
        self._config = config
        self._directory = directory
        self._model = model
        self._ranks = ranks
        self._forward = make_forward(model, config)
        self._exact_rows = exact_rows
        self._metrics = BinaryMetrics(exact_rows)
        self._speed = Speed()
        self._valid: Quality | None = None
        self._valid_step = -1
        self._nonfinite = NonfiniteUpdates(config, self.log.say)
        self._warned_of_files = False
        self._movement: RowMovement | None = None  # measured in the first steps of a new model

    def state(self) -> Arrays:
        """Returns the state of training metrics and validations, for checkpoints."""
        return {**self._metrics.state(), **self.early_stopping.state()}

    def set_state(self, state: Arrays) -> None:
        """Restores the state that `state` returned."""
        self._metrics.set_state(state)
        self.early_stopping.set_state(state)

    def start_epoch(self, at: Position) -> None:
        """Starts the clock of steps; metrics restart with the epoch, and continue within one.

        A collective.
        """
        if at.batch == 0:
            self._metrics = BinaryMetrics(self._exact_rows)
        if not self._nonfinite.has_begun:
            statistics = statistics_of_all(self._model.tables(), self._ranks)
            self._nonfinite.begin(statistics, at.step)
        self._speed.restart()

    def end_step(self, done: StepReport, number: int) -> None:
        """Adds a step to the metrics."""
        self._metrics.update(done.labels, done.logits, done.weights)
        self._speed.lap(done.rows)
        self._watch_rows(number)

    def start_step(self) -> None:
        """Restarts the clock, so that time between steps does not count."""
        self._speed.restart()

    def training(self, at: Position) -> None:
        """Reports the epoch's progressive quality, unless it was reported for this step already.

        Raises:
            FailedPreconditionError: too many updates of a table's rows were not finite.
        """
        tables, logged = self._model.tables(), self.log.logged
        if logged["train"] == at.step == logged["tables"]:
            return
        self._warn_of_full_files()
        statistics = statistics_of_all(tables, self._ranks)
        counted = watched_tables(tables, statistics)
        if counted and logged["tables"] != at.step:
            self.log.append("tables", at, _flat(counted))
        self._nonfinite.check(statistics, at.step)
        if logged["train"] == at.step:
            return
        speed = self._speed.samples_per_second()
        self.log.training(at, self._metrics.result(), speed, cache_of_all(tables, statistics))
        stages = stages_of_all(self._ranks)
        if stages:
            self.log.append("ranks", at, _flat(stages))

    def validation(self, at: Position) -> Best | None:
        """Measures the validation file, if there is one and this step was not measured yet.

        Returns:
            The best validation so far, if it is this one.
        """
        path = self._config.data.valid
        if path is None or self._valid_step == at.step:
            return None
        self._model.push_all()
        rows, shows = None if self._valid is None else self._valid.rows, self._ranks.is_first
        with RowProgress("validated", rows, passing=True, enabled=shows) as progress:
            self._valid = evaluate_file(self._forward, self._config, path, self._ranks, progress)
        self._valid_step = at.step
        self.log.validation(at, self._valid)
        is_best = self.early_stopping.observe(at.step, self._valid)
        best = self.early_stopping.best
        if self.early_stopping.is_enough:
            assert best is not None
            self.log.say(
                f"early stopping at step {at.step}: the best {best.metric} is "
                f"{best.value:.4f} at step {best.step}"
            )
        return best if is_best else None

    def checkpoints(self, outcomes: list[Outcome]) -> None:
        """Logs the checkpoints that were written."""
        for outcome in outcomes:
            if outcome.failure is None:
                self.log.append("checkpoint", outcome.position, outcome.metrics())

    def result(self, at: Position, first_step: int) -> TrainResult:
        """Returns the result of the run."""
        tables = self._model.tables()
        statistics = statistics_of_all(tables, self._ranks)
        return TrainResult(
            run_dir=self._directory.path,
            steps=at.step,
            first_step=first_step,
            best=self._directory.checkpoints.best(),
            samples_per_second=self._speed.samples_per_second(),
            train=self._metrics.result(),
            valid=self._valid,
            rows={name: counts["rows"] for name, counts in statistics.items()},
            tables=watched_tables(tables, statistics),
            ranks=self._ranks.size,
            stages=stages_of_all(self._ranks),
        )

    def _warn_of_full_files(self) -> None:
        """Warns once when the file of a table on disk is nearly full."""
        warning = None if self._warned_of_files else disk_rows.warning(self._model.tables())
        if warning is not None:
            self._warned_of_files = True
            self.log.say(warning)

    def _watch_rows(self, number: int) -> None:
        """Warns once if the first steps of a new model hardly move its rows."""
        if self._ranks.size > 1:  # a lookup of rows is a step of all ranks
            return
        if number == 1:
            self._movement = RowMovement(self._model.tables(), number)
        elif self._movement is not None and number == self._movement.end:
            warning = self._movement.warning()
            self._movement = None
            if warning is not None:
                self.log.say(warning)


def _flat(metrics: dict[str, Metrics]) -> Metrics:
    """Returns metrics of tables, or of stages, with keys `<table>/<metric>`."""
    return {f"{name}/{key}": n for name, of in metrics.items() for key, n in of.items()}
