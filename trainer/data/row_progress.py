"""Shows the number of rows done, the total and the time left: a bar on a terminal, else lines."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, TextIO

from tqdm import tqdm


class RowProgress:
    """Counts rows on standard error; use it as a context manager."""

    def __init__(
        self,
        what: str,
        total_rows: int | None = None,
        stream: TextIO | None = None,
        line_seconds: float = 10.0,
        passing: bool = False,
        enabled: bool = True,
    ) -> None:
        """Starts at no rows.

        Args:
            what: the operation on the rows, such as "generated".
            total_rows: total number of rows; None: unknown. With `share` in `add`, an upper bound
                of the estimated total.
            stream: where to write; None: standard error.
            line_seconds: time between two plain lines.
            passing: the bar appears after a second and disappears when the rows are done.
            enabled: False: show nothing.
        """
        self._what = what
        self._total_rows = total_rows
        self._stream = stream or sys.stderr
        self._line_seconds = line_seconds
        self._rows = 0
        self._started = self._last_line = time.monotonic()
        self._bar: tqdm[Any] | None = None
        self._enabled = enabled
        if enabled and self._stream.isatty():
            self._bar = tqdm(
                total=total_rows,
                unit=" rows",
                unit_scale=True,
                file=self._stream,
                leave=not passing,
                delay=1.0 if passing else 0.0,
            )

    def add(self, rows: int, share: float | None = None) -> None:
        """Counts `rows` more.

        Args:
            rows: number of rows done since the last call.
            share: share of the file read so far, in [0, 1]; the total is estimated from it. None:
                unknown.
        """
        self._rows += rows
        total = self._expected_rows(share)
        now = time.monotonic()
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(rows)
        elif self._enabled and now - self._last_line >= self._line_seconds:
            self._last_line = now
            print(self._line(total, now - self._started), file=self._stream, flush=True)

    def __enter__(self) -> RowProgress:
        """Returns itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()

    def _expected_rows(self, share: float | None) -> int | None:
        if not share:
            return self._total_rows
        estimate = max(self._rows, round(self._rows / share))
        return estimate if self._total_rows is None else min(estimate, self._total_rows)

    def _line(self, total: int | None, seconds: float) -> str:
        speed = self._rows / seconds if seconds else 0.0
        statistics = f"rows {self._what}, {speed:,.0f} rows/s"
        if total is None:
            return f"{self._rows:,} {statistics}"
        about = "" if total == self._total_rows else "about "
        left = f", {tqdm.format_interval((total - self._rows) / speed)} left" if speed else ""
        return f"{self._rows:,} of {about}{total:,} {statistics}{left}"
