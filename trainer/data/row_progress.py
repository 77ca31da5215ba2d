"""Shows how many rows are done: a bar on a terminal, a plain line now and then elsewhere."""

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
    ) -> None:
        """Starts at no rows.

        Args:
            what: what is done to the rows, such as "generated".
            total_rows: how many there will be; None: not known.
            stream: where to write; None: standard error.
            line_seconds: time between two plain lines.
            passing: the bar comes after a second and goes when the rows are done.
        """
        self._what = what
        self._total_rows = total_rows
        self._stream = stream or sys.stderr
        self._line_seconds = line_seconds
        self._rows = 0
        self._started = self._last_line = time.monotonic()
        self._bar: tqdm[Any] | None = None
        if self._stream.isatty():
            self._bar = tqdm(
                total=total_rows,
                unit=" rows",
                unit_scale=True,
                file=self._stream,
                leave=not passing,
                delay=1.0 if passing else 0.0,
            )

    def add(self, rows: int) -> None:
        """Counts `rows` more."""
        self._rows += rows
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(rows)
        elif now - self._last_line >= self._line_seconds:
            self._last_line = now
            of_total = "" if self._total_rows is None else f" of {self._total_rows:,}"
            speed = self._rows / (now - self._started)
            line = f"{self._rows:,}{of_total} rows {self._what}, {speed:,.0f} rows/s"
            print(line, file=self._stream, flush=True)

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
