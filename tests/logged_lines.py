"""What is logged while a test does something."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator


class _Handler(logging.Handler):
    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        self._take(record.getMessage())


@contextlib.contextmanager
def logged_lines(take: Callable[[str], None] | None = None) -> Iterator[list[str]]:
    """Gives a list that messages of the package come to; or `take`, which gets each."""
    lines: list[str] = []
    logger = logging.getLogger("hotrow")
    handler, level = _Handler(take or lines.append), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
