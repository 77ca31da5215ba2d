"""The life of a model's versions: which are loaded, which serve, which are on their way out.

The policy is TF Serving's availability preserving one: the newest version is loaded first, the
one it replaces is unloaded afterwards; a version that fails to load leaves the older one serving.
One thread polls and loads, each unload has one of its own; requests never wait for them.
"""

from __future__ import annotations

import enum
import functools
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from hotrow.serving.status import Code, RequestError, as_request_error


class Closable(Protocol):
    """What a loader returns: something that can be freed."""

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
    """What GetModelStatus says of one version."""

    version: int
    state: State
    code: Code = Code.OK
    message: str = ""


@dataclass(frozen=True)
class LoadPolicy:
    """How often to look for versions and to try to load one.

    Attributes:
        poll_seconds: time between two looks at the base path; None looks once.
        max_retries: further attempts after the first failed load.
        retry_seconds: time between two attempts.
    """

    poll_seconds: float | None = 1.0
    max_retries: int = 5
    retry_seconds: float = 60.0


class _Version(Generic[T]):
    """Book-keeping of one version; guarded by the lifecycle's lock."""

    def __init__(self, number: int, path: Path) -> None:
        self.number = number
        self.path = path
        self.state = State.START
        self.error: RequestError | None = None
        self.servable: T | None = None
        self.leaving = False  # its unload has begun
        self.attempts = 0
        self.due = 0.0  # monotonic time of the next attempt to load
        self.aspired = True

    def status(self) -> VersionStatus:
        if self.error is None:
            return VersionStatus(self.number, self.state)
        return VersionStatus(self.number, self.state, self.error.code, str(self.error))


class ModelLifecycle(Generic[T]):
    """Loads and unloads the versions of one model as they appear and go.

    Args:
        name: the model's name, for messages.
        list_versions: returns the versions that should serve and their directories; None when
            it cannot tell now, which changes nothing.
        load: returns a version, ready to serve; raises to refuse it.
        publish: takes the versions that requests may use from now on.
        policy: polling and retries.
        log: takes one line for each change an operator cares for.
    """

    def __init__(
        self,
        name: str,
        list_versions: Callable[[], Mapping[int, Path] | None],
        load: Callable[[int, Path], T],
        publish: Callable[[Mapping[int, T]], None],
        policy: LoadPolicy,
        log: Callable[[str], None],
    ) -> None:
        self._name = name
        self._list_versions = list_versions
        self._load = load
        self._publish = publish
        self._policy = policy
        self._log = log
        self._changed = threading.Condition()
        self._versions: dict[int, _Version[T]] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"lifecycle-{name}", daemon=True)

    def start(self) -> None:
        """Begins to poll, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Unloads every version, after its last request, and ends the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def wait_until_served(self, timeout_seconds: float) -> bool:
        """Returns whether a version is AVAILABLE, waiting for one up to the timeout.

        Raises:
            RequestError: UNKNOWN, when every version found so far failed for good.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._served() or self._failed(), timeout_seconds)
            if self._served():
                return True
            failed = self._failed()
            if failed:
                raise RequestError(
                    Code.UNKNOWN,
                    f"{len(failed)} model(s) did not become available: {{{{{{name: {self._name} "
                    f"version: {failed[-1].number}}} due to error: {failed[-1].error}}}, }}",
                )
            return False

    def statuses(self) -> list[VersionStatus]:
        """Returns the status of every version seen since the start, the highest first."""
        with self._changed:
            return [self._versions[number].status() for number in sorted(self._versions)[::-1]]

    def _served(self) -> bool:
        return any(entry.state is State.AVAILABLE for entry in self._versions.values())

    def _failed(self) -> list[_Version[T]]:
        entries = sorted(self._versions.values(), key=lambda entry: entry.number)
        if any(entry.state is not State.END for entry in entries):
            return []
        return [entry for entry in entries if entry.error is not None and entry.aspired]

    # From here on: the lifecycle's own thread.

    def _run(self) -> None:
        next_poll = 0.0
        while True:
            if time.monotonic() >= next_poll:
                self._poll()
                wait = self._policy.poll_seconds
                next_poll = math.inf if wait is None else time.monotonic() + wait
            with self._changed:
                self._retire()
                action = self._next_action()
                if action is None:
                    if self._stopping and self._all_ended():
                        return
                    self._changed.wait(self._idle_seconds(next_poll))
                    continue
            action()

    def _poll(self) -> None:
        """Takes over which versions are aspired now."""
        found = self._list_versions()
        with self._changed:
            if found is None or self._stopping:
                return
            for number, path in found.items():
                known = self._versions.get(number)
                if known is None or (
                    # It came back; one that failed is not tried again while it stays there.
                    known.state is State.END and (known.error is None or not known.aspired)
                ):
                    self._versions[number] = _Version(number, path)
            for number, entry in self._versions.items():
                entry.aspired = number in found

    def _retire(self) -> None:
        """Takes un-aspired versions out of service, once they are not needed any more."""
        entries = self._versions.values()
        if self._stopping:
            for entry in entries:
                entry.aspired = False
        wanted = any(entry.aspired for entry in entries)
        replaced = any(entry.aspired and entry.state is State.AVAILABLE for entry in entries)
        for entry in entries:
            if entry.aspired:
                continue
            if entry.state is State.AVAILABLE and (replaced or not wanted):
                entry.state = State.UNLOADING
            elif entry.state in (State.START, State.LOADING):
                entry.state = State.END
        self._changed.notify_all()

    def _next_action(self) -> Callable[[], None] | None:
        """Returns the next thing to do without the lock: to begin an unload, or a load."""
        for entry in self._versions.values():
            if entry.state is State.UNLOADING and not entry.leaving:
                entry.leaving = True
                return functools.partial(self._begin_unload, entry)
        now = time.monotonic()
        due = [entry for entry in self._loadable() if entry.due <= now]
        if not due:
            return None
        newest = max(due, key=lambda entry: entry.number)
        newest.state = State.LOADING
        return functools.partial(self._load_version, newest)

    def _loadable(self) -> list[_Version[T]]:
        # A LOADING one that this thread sees waits for its next attempt.
        states = (State.START, State.LOADING)
        return [entry for entry in self._versions.values() if entry.state in states]

    def _all_ended(self) -> bool:
        return all(entry.state is State.END for entry in self._versions.values())

    def _idle_seconds(self, next_poll: float) -> float | None:
        next_event = min([next_poll, *(entry.due for entry in self._loadable())])
        return None if math.isinf(next_event) else max(0.0, next_event - time.monotonic())

    def _load_version(self, entry: _Version[T]) -> None:
        try:
            servable = self._load(entry.number, entry.path)
        except Exception as err:
            self._record_failure(entry, as_request_error(err))
            return
        # Routed to before it is reported: who reads AVAILABLE gets answers of it.
        self._publish({**self._routed(), entry.number: servable})
        with self._changed:
            entry.servable = servable
            entry.error = None
            entry.state = State.AVAILABLE
            self._changed.notify_all()
        self._log(f"{self._name}: version {entry.number} is available")

    def _routed(self) -> dict[int, T]:
        with self._changed:
            return {
                entry.number: entry.servable
                for entry in self._versions.values()
                if entry.state is State.AVAILABLE and entry.servable is not None
            }

    def _record_failure(self, entry: _Version[T], error: RequestError) -> None:
        policy = self._policy
        with self._changed:
            entry.error = error
            entry.attempts += 1
            last = entry.attempts > policy.max_retries
            if last:
                entry.state = State.END
            else:
                entry.due = time.monotonic() + policy.retry_seconds
            self._changed.notify_all()
        then = "gave up" if last else f"next in {policy.retry_seconds:g} s"
        self._log(
            f"{self._name}: version {entry.number} failed to load (attempt {entry.attempts} of "
            f"{policy.max_retries + 1}, {then}): {error}"
        )

    def _begin_unload(self, entry: _Version[T]) -> None:
        self._publish(self._routed())
        threading.Thread(
            target=self._unload_version,
            args=[entry],
            name=f"unload-{self._name}-{entry.number}",
            daemon=True,
        ).start()

    def _unload_version(self, entry: _Version[T]) -> None:
        servable, entry.servable = entry.servable, None
        try:
            if servable is not None:
                servable.close()
        except Exception as err:
            entry.error = as_request_error(err)
        with self._changed:
            entry.state = State.END
            self._changed.notify_all()
        self._log(f"{self._name}: version {entry.number} is unloaded")
