"""Lines of progress on standard error, now and then."""

from __future__ import annotations

import time

import click

_LINE_SECONDS = 5.0


class ProgressLines:
    """Prints a line if the last printed one is some seconds old."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, line: str) -> None:
        """Prints the line, unless the last one is too recent."""
        if time.monotonic() - self._last >= _LINE_SECONDS:
            self._last = time.monotonic()
            click.echo(line, err=True)
