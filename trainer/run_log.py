"""Reports of a run while it trains: lines, metrics.jsonl, TensorBoard. Only rank 0 writes them."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from dataclasses import asdict
from typing import Any

import tensorflow as tf

from hotrow.cache_statistics import CacheStatistics
from hotrow.trainer.checkpoint import Position
from hotrow.trainer.event_log import EventLog
from hotrow.trainer.metrics import Quality
from hotrow.trainer.progress import Progress
from hotrow.trainer.run_directory import EVENTS, RunDirectory, read_metrics


class RunLog:
    """The log of one call of `train`.

    Attributes:
        logged: for each kind of record, the last step that metrics.jsonl has.
    """

    def __init__(self, directory: RunDirectory, quiet: bool) -> None:
        """Opens the log.

        Args:
            directory: the run's directory.
            quiet: write nothing, but keep track of records: for all ranks but the first.
        """
        self.logged = {"train": -1, "valid": -1, "tables": -1, "ranks": -1}
        self._directory = directory
        self._quiet = quiet
        self._events: EventLog | None = None if quiet else EventLog(directory.path / EVENTS)
        self._progress: Progress | None = None

    def start_over(self) -> None:
        """Removes the measurements of a run that has no checkpoint to continue from."""
        if not self._quiet:
            self._directory.truncate_metrics(-1)

    def continue_from(self, step: int) -> None:
        """Removes measurements after a step, and keeps track of earlier ones."""
        if self._quiet:
            return
        self._directory.truncate_metrics(step)
        for record in read_metrics(self._directory.path):
            self.logged[record["kind"]] = record["step"]

    def start_steps(self, step: int, total: int | None) -> None:
        """Starts to show progress, from a step to the expected total of steps; None: no end."""
        if not self._quiet:
            self._progress = Progress(step, total_steps=total)

    def step_done(self) -> bool:
        """Counts a step; returns whether a report is due."""
        return self._progress is not None and self._progress.step_done()

    def say(self, line: str) -> None:
        """Writes a line for the user; a disk that is full does not end the run."""
        if self._quiet:
            return
        if self._progress is not None:
            self._progress.say(line)
        else:
            with contextlib.suppress(OSError):
                print(line, file=sys.stderr)

    def training(
        self, position: Position, quality: Quality, speed: float, cache: CacheStatistics | None
    ) -> None:
        """Shows and writes training metrics; `speed` is samples a second."""
        if self._progress is not None:
            self._progress.report_training(position.step, position.epoch, quality, speed, cache)
        self.append("train", position, {**asdict(quality), "samples_per_second": speed})

    def validation(self, position: Position, quality: Quality) -> None:
        """Shows validation metrics; writes them unless this step's are written already."""
        if self._progress is not None:
            self._progress.report_validation(position.step, quality)
        if self.logged["valid"] != position.step:
            self.append("valid", position, asdict(quality))

    def append(self, kind: str, position: Position, values: dict[str, Any]) -> None:
        """Writes a record. If the disk refuses, it prints a warning, and the run continues."""
        self.logged[kind] = position.step
        if self._events is None:
            return
        at = {"kind": kind, "step": position.step, "epoch": position.epoch, "time": time.time()}
        numbers = {
            f"{kind}/{key}": value
            for key, value in values.items()
            if not isinstance(value, str) and math.isfinite(value)
        }
        try:
            self._directory.append_metrics({**at, **values})
            self._events.write(position.step, numbers)
        except (OSError, tf.errors.OpError) as err:
            self.say(
                f"metrics ({kind}) of step {position.step} are not written: {err}; training goes on"
            )

    def close(self) -> None:
        """Closes the log."""
        if self._events is not None:
            self._events.close()
        if self._progress is not None:
            self._progress.close()
