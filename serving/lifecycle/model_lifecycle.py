"""The life cycle of a model's versions: which are loaded, which serve, which unload.

`availability` decides what is loaded and unloaded, and in which order; a version that fails to
load leaves the older one serving. One thread for each model polls and decides; loads and unloads
have threads of their own, so that neither holds up the polling, another model, or a request.
"""

from __future__ import annotations

import enum
import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from hotrow.serving.lifecycle.availability import (
    Candidate,
    Stage,
    version_to_load,
    version_to_unload,
)
from hotrow.serving.lifecycle.limited_threads import LimitedThreads
from hotrow.serving.lifecycle.load_policy import LoadAttempts, LoadPolicy
from hotrow.serving.lifecycle.versions import FindVersions
from hotrow.serving.monitoring.log_line import about
from hotrow.serving.wire.status import Code, RequestError, as_request_error

_LOG = logging.getLogger(__name__)


class Closable(Protocol):
    """A loaded version, which can be freed; the result of a loader."""

    def close(self) -> None:
        """Frees it when the last request that uses it has ended."""


T = TypeVar("T", bound=Closable)


class State(enum.IntEnum):
    """State of a version, with the numbers of TF Serving's `ModelVersionStatus.State`."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclass(frozen=True)
class VersionStatus:
    """Status of one version, as GetModelStatus returns it.

    `given_up`, which it does not return: whether the version should serve and all loads failed.
    """

    version: int
    state: State
    code: Code = Code.OK
    message: str = ""
    given_up: bool = field(default=False, compare=False)


class _Version(Generic[T]):
    """Book-keeping of one version; guarded by the lifecycle's lock."""

    def __init__(self, number: int, path: Path) -> None:
        self.number = number
        self.path = path
        self.state = State.START
        self.error: RequestError | None = None
        self.servable: T | None = None
        self.busy = False  # a thread loads or unloads it, or is about to
        self.attempts = LoadAttempts()
        self.due = 0.0  # monotonic time of the next attempt to load
        self.aspired = True
        self.lost: RequestError | None = None  # while a load of it ends

    def status(self) -> VersionStatus:
        if self.error is None:
            return VersionStatus(self.number, self.state)
        given_up = self.aspired and self.state is State.END
        return VersionStatus(self.number, self.state, self.error.code, str(self.error), given_up)

    def candidate(self) -> Candidate:
        stages = {State.START: Stage.NEW, State.AVAILABLE: Stage.READY}
        return Candidate(self.number, stages.get(self.state, Stage.OTHER), self.aspired)

    def waits(self) -> bool:
        """Whether a load has failed and another attempt will follow."""
        return self.state is State.LOADING and not self.busy


Lost = Callable[[RequestError], None]
"""Called with the reason when a loaded version is lost without being unloaded."""


class ModelLifecycle(Generic[T]):
    """Loads and unloads the versions of one model as they appear and go.

    Args:
        name: the model's name, for messages.
        load: returns a version, ready to serve; raises to refuse it.
        publish: takes the versions that requests may use from now on.
        policy: polling and retries.
        loading: runs loads; without a limit, the versions of the model load one after the other.
        unloading: runs unloads.
        changed: the lock of all lifecycles, notified of every change.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[int, Path, Lost], T],
        publish: Callable[[Mapping[int, T]], None],
        policy: LoadPolicy,
        loading: LimitedThreads,
        unloading: LimitedThreads,
        changed: threading.Condition,
    ) -> None:
        self._name = name
        self._load = load
        self._publish = publish
        self._policy = policy
        self._loading = loading
        self._unloading = unloading
        self._changed = changed
        self._find: FindVersions | None = None
        self._next_poll = math.inf
        self._aspired: Mapping[int, Path] = {}
        self._looked = False
        self._versions: dict[int, _Version[T]] = {}
        self._stopping = False
        # Held from reading the routed versions until the new ones are published.
        self._publishing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"lifecycle-{name}", daemon=True)
        self._thread.start()

    def aspire(self, find: FindVersions) -> None:
        """Serves the versions that `find` returns; calls it at once, and then at each poll."""
        with self._changed:
            self._find = find
            self._next_poll = 0.0
            self._changed.notify_all()

    def retire(self) -> None:
        """Unloads all versions and aspires to none from now on."""
        with self._changed:
            self._find = None
            self._next_poll = math.inf
            self._aspired = {}
            self._reconcile()
            self._changed.notify_all()

    def stop(self) -> None:
        """Unloads every version, after its last request, and ends the thread."""
        with self._changed:
            self._stopping = True
            self.retire()
        self._thread.join()

    def outcome(self) -> VersionStatus | None:
        """Returns a version that is AVAILABLE, or that failed for good; None while there is none.

        As in TF Serving, the highest version in one of these two states decides for the model.
        """
        with self._changed:
            for number in sorted(self._versions)[::-1]:
                entry = self._versions[number]
                failed = entry.state is State.END and entry.error is not None
                if entry.aspired and (entry.state is State.AVAILABLE or failed):
                    return entry.status()
        return None

    def settled(self, versions: set[int]) -> bool:
        """Returns whether the model has an outcome and none of these versions is still loading."""
        with self._changed:
            if not self._looked or (self._aspired and self.outcome() is None):
                return False
            known = [self._versions[number] for number in versions if number in self._versions]
            return not any(
                entry.state is State.START or (entry.state is State.LOADING and entry.busy)
                for entry in known
            )

    def statuses(self) -> list[VersionStatus]:
        """Returns the status of every version seen since the start, the highest first."""
        with self._changed:
            return [self._versions[number].status() for number in sorted(self._versions)[::-1]]

    # From here on: the lifecycle's own thread.

    def _run(self) -> None:
        while True:
            with self._changed:
                find = self._find if time.monotonic() >= self._next_poll else None
            if find is not None:
                self._poll(find)
            with self._changed:
                self._reconcile()
                while self._begin_next():
                    pass
                if self._stopping and self._all_ended():
                    return
                self._changed.wait(self._idle_seconds())

    def _poll(self, find: FindVersions) -> None:
        """Polls the source and replaces the aspired versions."""
        try:
            found = find()
        except Exception as err:
            _LOG.error(
                f"{self._name}: its versions cannot be listed: {as_request_error(err)}",
                extra=about(self._name),
            )
            found = None
        with self._changed:
            if self._find is not find:
                return
            wait = self._policy.poll_seconds
            self._next_poll = math.inf if wait is None else time.monotonic() + wait
            if found is not None:
                self._aspired = found
                self._looked = True
                self._reconcile()

    def _reconcile(self) -> None:
        """Brings the versions in line with the aspired ones."""
        before = self.statuses()
        for number, path in self._aspired.items():
            known = self._versions.get(number)
            if known is None or (
                # It came back; one that failed is not tried again while it stays there.
                known.state is State.END and (known.error is None or not known.aspired)
            ):
                self._versions[number] = _Version(number, path)
        for number, entry in self._versions.items():
            entry.aspired = number in self._aspired
            if not entry.aspired and (entry.state is State.START or entry.waits()):
                entry.state = State.END
        # This wakes the threads of all lifecycles, including this one.
        if self.statuses() != before:
            self._changed.notify_all()

    def _begin_next(self) -> bool:
        """Begins one unload or load, if there is one to begin."""
        candidates = [entry.candidate() for entry in self._versions.values()]
        number = version_to_unload(candidates)
        if number is not None:
            entry = self._versions[number]
            entry.state = State.UNLOADING
            entry.busy = True
            self._unloading.run(functools.partial(self._unload_version, entry))
            return True
        if not self._loading.limited and self._loads():
            return False
        now = time.monotonic()
        due = [e.number for e in self._versions.values() if e.waits() and e.due <= now]
        new = version_to_load(candidates)
        number = max(due if new is None else [*due, new], default=None)
        if number is None:
            return False
        entry = self._versions[number]
        entry.state = State.LOADING
        entry.busy = True
        self._loading.run(functools.partial(self._load_version, entry))
        return True

    def _loads(self) -> bool:
        return any(e.busy and e.state is State.LOADING for e in self._versions.values())

    def _all_ended(self) -> bool:
        return all(entry.state is State.END for entry in self._versions.values())

    def _idle_seconds(self) -> float | None:
        dues = [entry.due for entry in self._versions.values() if entry.waits()]
        if not self._loading.limited and self._loads():
            dues = []
        next_event = min([self._next_poll, *dues])
        return None if math.isinf(next_event) else max(0.0, next_event - time.monotonic())

    # From here on: threads of loads and unloads.

    def _load_version(self, entry: _Version[T]) -> None:
        entry.lost = None
        servable: T | None = None
        try:
            servable = self._load(entry.number, entry.path, functools.partial(self._lose, entry))
            with self._publishing:
                if entry.lost is not None:
                    raise entry.lost
                # Route first, then report: a client that reads AVAILABLE gets its answers.
                self._publish({**self._routed(), entry.number: servable})
                with self._changed:
                    entry.servable = servable
                    entry.error = None
                    entry.state = State.AVAILABLE
                    entry.busy = False
                    self._changed.notify_all()
        except Exception as err:
            self._free(entry, servable)
            self._record_failure(entry, as_request_error(err))
        else:
            self._say(logging.INFO, entry, "is available")

    def _routed(self) -> dict[int, T]:
        with self._changed:
            return {
                entry.number: entry.servable
                for entry in self._versions.values()
                if entry.state is State.AVAILABLE and entry.servable is not None
            }

    def _record_failure(self, entry: _Version[T], error: RequestError) -> None:
        with self._changed:
            failed = entry.attempts.fail(error, self._policy)
            last = failed.last or not entry.aspired
            entry.error = error
            entry.busy = False
            entry.state = State.END if last else State.LOADING
            entry.due = time.monotonic() + failed.pause
            self._changed.notify_all()
        then = "gave up" if last else f"next in {failed.pause:g} s"
        reason = " ".join(str(error).split())
        if str(entry.path) not in reason:  # TensorFlow seldom names what it could not read
            reason = f"{entry.path}: {reason}"
        self._say(logging.ERROR, entry, f"failed to load ({failed.text}, {then}): {reason}")

    def _say(self, level: int, entry: _Version[T], line: str) -> None:
        text = f"{self._name}: version {entry.number} {line}"
        _LOG.log(level, text, extra=about(self._name, entry.number), stacklevel=2)

    def _lose(self, entry: _Version[T], error: RequestError) -> None:
        """Takes a lost version out of service; another attempt to load it may follow."""
        with self._publishing:
            with self._changed:
                if entry.state is not State.AVAILABLE:
                    entry.lost = error
                    return
                entry.state = State.LOADING
                entry.busy = True
                servable, entry.servable = entry.servable, None
                entry.attempts.forget()
            self._publish(self._routed())
        self._free(entry, servable)
        self._record_failure(entry, error)

    def _free(self, entry: _Version[T], servable: T | None) -> None:
        """Frees what is left of a version that is not served after all."""
        if servable is None:
            return
        try:
            servable.close()
        except Exception as err:
            self._say(logging.WARNING, entry, f"is not freed: {as_request_error(err)}")

    def _unload_version(self, entry: _Version[T]) -> None:
        servable, entry.servable = entry.servable, None
        error = None
        try:
            with self._publishing:
                self._publish(self._routed())
            if servable is not None:
                servable.close()
        except Exception as err:
            error = as_request_error(err)
        with self._changed:
            entry.error = error
            entry.state = State.END
            entry.busy = False
            self._changed.notify_all()
        self._say(logging.INFO, entry, "is unloaded")
