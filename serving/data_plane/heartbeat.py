"""Whether the executable answers: asked twice a second along the path of a prediction."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

import grpc

from hotrow.serving.config.watch_options import WatchOptions
from hotrow.serving.data_plane.server_process import ServerProcess
from hotrow.serving.monitoring.metrics import Family, Kind
from hotrow.serving.wire.status import RequestError

_LOG = logging.getLogger(__name__)

METHOD = "/hotrow.Server/Beat"
"""Answered by `Call`, through the same port, queue and threads as a prediction."""

_BEAT_SECONDS = 0.5
_TICK_SECONDS = 0.25


class Heartbeat:
    """Measures how long a process has been silent, until it is closed.

    One thread asks, and waits for each answer however late it comes: a slow answer is an answer.
    Another thread measures. It counts no more time than it ran itself, so that a machine or a
    control process that was stopped, or starved of its CPU, proves nothing.

    Args:
        beat: asks the process once; returns when it has answered, raises if it cannot.
        watched: returns the process that should answer now; None: there is none.
        hung: called with a process that has been silent for too long.
        options: the limits.
    """

    def __init__(
        self,
        beat: Callable[[], None],
        watched: Callable[[], ServerProcess | None],
        hung: Callable[[ServerProcess, str], None],
        options: WatchOptions,
    ) -> None:
        self._beat = beat
        self._watched = watched
        self._hung = hung
        self._options = options
        self._lock = threading.Lock()
        self._process: ServerProcess | None = None
        self._silent_seconds = 0.0
        self._said = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Starts the threads."""
        threading.Thread(target=self._ask, name="beat", daemon=True).start()
        self._thread.start()

    def is_silent(self) -> bool:
        """Returns whether the process has not answered for `unready_after_seconds`."""
        with self._lock:
            return self._silent_seconds >= self._options.unready_after_seconds

    def close(self) -> None:
        """Stops measuring; the last question ends with the process."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def families(self) -> list[Family]:
        """Returns the metric."""
        silent = Family("hotrow_server_is_silent", Kind.GAUGE, ())
        silent.add((), self.is_silent())
        return [silent]

    def _ask(self) -> None:
        while not self._closed.wait(_BEAT_SECONDS):
            process = self._watched()
            if process is None:
                continue
            with contextlib.suppress(OSError, RequestError, grpc.RpcError, ValueError):
                self._beat()
                with self._lock:
                    if process is self._process:
                        self._silent_seconds = 0.0

    def _measure(self) -> None:
        before = time.monotonic()
        while not self._closed.wait(_TICK_SECONDS):
            now = time.monotonic()
            passed, before = min(now - before, 2 * _TICK_SECONDS), now
            process = self._watched()
            with self._lock:
                if process is None or process is not self._process:
                    self._process, self._silent_seconds = process, 0.0
                else:
                    self._silent_seconds += passed
                silent_seconds = self._silent_seconds
            self._report(process, silent_seconds)

    def _report(self, process: ServerProcess | None, silent_seconds: float) -> None:
        options = self._options
        silent = silent_seconds >= options.unready_after_seconds
        if silent and not self._said:
            after = options.restart_after_seconds
            then = f"killed and started again after {after:g} s" if after else "not restarted"
            _LOG.error(
                f"hotrow-server has not answered for {silent_seconds:.1f} s: not ready; it is "
                f"{then}"
            )
        elif self._said and not silent and process is not None:
            _LOG.info("hotrow-server answers again")
        self._said = silent if process is not None else False
        if process is not None and 0 < options.restart_after_seconds <= silent_seconds:
            self._hung(process, f"has not answered for {silent_seconds:.1f} s")
