"""Standard error of a server's processes, written in one form by their supervisor.

The supervisor neither crashes with a model nor restarts, so the last lines of the other processes
are not lost.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from types import TracebackType

from hotrow.serving.monitoring.log_line import LineFormatter, LogLine

# To read what is left in the pipe after all processes have ended.
_LAST_READ_SECONDS = 2.0
# A line that is longer is written in pieces.
_MAX_LINE_BYTES = 1 << 20


class LogRelay:
    """Reads lines from a pipe and writes them to this process's standard error.

    Attributes:
        descriptor: the end of the pipe that is another process's standard error.
    """

    def __init__(self, form: str) -> None:
        """Starts a thread that reads.

        Args:
            form: TEXT or JSON of `log_line`.
        """
        self._form = form
        self._lock = threading.Lock()
        self._reading, self.descriptor = os.pipe()
        self._thread = threading.Thread(target=self._read, name="log", daemon=True)
        self._thread.start()

    def write(self, line: LogLine) -> None:
        """Writes a line in one piece; drops it without a reader or without room on the disk."""
        data = f"{line.written(self._form)}\n".encode(errors="backslashreplace")
        with self._lock, contextlib.suppress(OSError):
            while data:
                data = data[os.write(sys.stderr.fileno(), data) :]

    def take_over_logging(self) -> None:
        """Writes this process's own log records, warnings and uncaught exceptions, too."""
        _log_to(_RelayHandler(self))

    def close(self) -> None:
        """Returns when every line has been written."""
        os.close(self.descriptor)
        self._thread.join(_LAST_READ_SECONDS)

    def _read(self) -> None:
        for text in _lines(self._reading):
            self.write(LogLine.parse(text))
        os.close(self._reading)


def log_to_relay() -> None:
    """Sends Python's log records, warnings and uncaught exceptions to a relay that reads stderr."""
    _log_to(logging.StreamHandler(sys.stderr))


class _RelayHandler(logging.Handler):
    """Hands records to a relay in the same process."""

    def __init__(self, relay: LogRelay) -> None:
        super().__init__()
        self._relay = relay

    def emit(self, record: logging.LogRecord) -> None:
        self._relay.write(LogLine.parse(self.format(record)))


def _log_to(handler: logging.Handler) -> None:
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    sys.excepthook = _log_exception
    threading.excepthook = lambda failed: _log_exception(
        failed.exc_type, failed.exc_value, failed.exc_traceback
    )


def _log_exception(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    if error is not None and not issubclass(kind, SystemExit | KeyboardInterrupt):
        logging.getLogger(__name__).critical("uncaught exception", exc_info=(kind, error, trace))


def _lines(descriptor: int) -> Iterator[str]:
    """Yields what is read, a line at a time, until the last writer has closed its end."""
    rest = b""
    while data := os.read(descriptor, 1 << 16):
        *whole, rest = (rest + data).split(b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            whole, rest = [*whole, rest], b""
        yield from (line.decode(errors="backslashreplace") for line in whole)
    if rest:
        yield rest.decode(errors="backslashreplace")
