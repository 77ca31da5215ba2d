"""Shows the progress of a training run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from typing import Any, TextIO

from tqdm import tqdm

from hotrow.cache_statistics import CacheStatistics
from hotrow.colors import colored
from hotrow.trainer.metrics import Quality

LINE_SECONDS = 10.0


class Progress:
    """Reports on standard error: a tqdm bar if that is a terminal, else a line every ~10 s."""

    def __init__(
        self, start_step: int, stream: TextIO | None = None, total_steps: int | None = None
    ) -> None:
        """Starts at a step.

        Args:
            start_step: number of steps done before.
            stream: where to write; None: standard error.
            total_steps: expected number of steps at the end; None: unknown.
        """
        self._start_step = start_step
        self._total_steps = total_steps
        self._started = time.monotonic()
        self._stream = stream or sys.stderr
        self._bar: tqdm[Any] | None = None
        if self._stream.isatty():
            self._bar = tqdm(
                initial=start_step,
                total=total_steps,
                unit="step",
                file=self._stream,
                dynamic_ncols=True,
            )
        self._due = time.monotonic() + LINE_SECONDS

    def step_done(self) -> bool:
        """Counts a step; returns whether a report is due."""
        if self._bar is not None:
            self._bar.update()
        return time.monotonic() >= self._due

    def report_training(
        self,
        step: int,
        epoch: int,
        quality: Quality,
        samples_per_second: float,
        cache: CacheStatistics | None = None,
    ) -> None:
        """Shows training metrics; the next report is due in 10 s.

        Args:
            step: of the training.
            epoch: from 0.
            quality: of the last steps.
            samples_per_second: NaN: nothing was trained since the last report.
            cache: of tables with a cache.
        """
        self._due = time.monotonic() + LINE_SECONDS
        metrics = f"auc {quality.auc:.4f}  logloss {quality.logloss:.4f}"
        if cache is not None:
            metrics += f"  cache: {cache}"
        if self._bar is not None:
            self._bar.set_postfix_str(f"epoch {epoch + 1}  {metrics}", refresh=False)
        else:
            speed = samples_per_second
            rate = "" if math.isnan(speed) else f"{speed:,.0f} samples/s  "
            self.say(f"step {step}{self._of_total(step)}  epoch {epoch + 1}  {rate}{metrics}")

    def report_validation(self, step: int, quality: Quality) -> None:
        """Shows validation metrics in a line of their own."""
        label = colored("validation:", "green", self._stream)
        self.say(
            f"step {step}  {label} auc {quality.auc:.4f}  logloss {quality.logloss:.4f}  "
            f"calibration {quality.calibration:.3f}  ({quality.rows:,} rows)"
        )

    def _of_total(self, step: int) -> str:
        """Returns the total of steps and the remaining time, as text for a line."""
        done = step - self._start_step
        if self._total_steps is None or done <= 0 or step >= self._total_steps:
            return ""
        seconds = (time.monotonic() - self._started) / done * (self._total_steps - step)
        return f" of about {self._total_steps:,}, {tqdm.format_interval(seconds)} left"

    def say(self, line: str) -> None:
        """Writes a line, above the bar if there is one; a full disk does not end the run."""
        label, found, rest = line.partition("warning:")
        if found and not label:
            line = colored(found, "yellow", self._stream) + rest
        with contextlib.suppress(OSError):
            if self._bar is not None:
                self._bar.write(line, file=self._stream)
            else:
                print(line, file=self._stream, flush=True)

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()
