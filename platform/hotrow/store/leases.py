"""Leases: who uses a generation, and who writes to a model, until when.

A lease that is not renewed ends by the store's clock, so a process that dies gives it back.
"""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from types import TracebackType

from hotrow.errors import FailedPreconditionError, HotrowError
from hotrow.store.row_store import Records

_READERS = "lease/"
_EXPORTER = "export/"
_RENEWALS = 3.0  # in the time of a lease
_RELEASE_SECONDS = 2.0


class Lease:
    """A lease that a thread renews until it is released. Use it in a `with` statement.

    Attributes:
        lost: set when it ended although it was not released: the store was away for too long, or
            somebody else took it.
    """

    def __init__(self, records: Records, name: str, seconds: float, holder: str) -> None:
        """Takes the lease `name`.

        Raises:
            FailedPreconditionError: another holder has it.
        """
        self.lost = threading.Event()
        self._records = records
        self._name = name
        self._millis = int(seconds * 1000)
        self._holder = holder
        self._released = threading.Event()
        self._take()
        self._thread = threading.Thread(
            target=self._renew_until_released, name=f"lease {name}", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Fails when it is not held any more.

        Raises:
            FailedPreconditionError: it was lost.
        """
        if self.lost.is_set():
            raise FailedPreconditionError(
                f"{self._name} was lost: somebody else took it, or the store was away for too "
                "long; try again"
            )

    def release(self) -> None:
        """Gives it back; idempotent. Leaves it to its end when the store does not answer soon."""
        if self._released.is_set():
            return
        self._released.set()
        giving_back = threading.Thread(target=self._give_back, daemon=True)
        giving_back.start()
        giving_back.join(_RELEASE_SECONDS)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _take(self) -> None:
        text = self._records.get(self._name)
        now = self._records.now_ms()
        if text is not None:
            held = json.loads(text)
            if held["until"] > now:
                seconds = (held["until"] - now) / 1000
                raise FailedPreconditionError(
                    f"{self._name} is held by {held['holder']}, for {seconds:.0f} s unless it is "
                    "renewed; wait until it has ended"
                )
        if not self._records.swap(self._name, text, self._text(now)):
            raise FailedPreconditionError(f"{self._name} was just taken by somebody else")

    def _renew(self) -> bool:
        """Makes it last longer; returns whether it was still held."""
        text = self._records.get(self._name)
        if text is None or json.loads(text)["holder"] != self._holder:
            return False
        return self._records.swap(self._name, text, self._text(self._records.now_ms()))

    def _text(self, now: int) -> str:
        return json.dumps({"holder": self._holder, "until": now + self._millis})

    def _renew_until_released(self) -> None:
        pause = self._millis / 1000 / _RENEWALS
        while not self._released.wait(pause):
            try:
                held = self._renew()
            except HotrowError:
                continue  # the store is away: the next renewal tells whether it is still ours
            if not held and not self._released.is_set():
                self.lost.set()
                return

    def _give_back(self) -> None:
        self._thread.join()
        with contextlib.suppress(HotrowError):
            text = self._records.get(self._name)
            if text is not None and json.loads(text)["holder"] == self._holder:
                self._records.swap(self._name, text, None)


def use(records: Records, generation: str, holder: str, seconds: float = 30.0) -> Lease:
    """Takes a lease on a generation for a reader; it is not deleted meanwhile."""
    return Lease(records, f"{_READERS}{generation}/{holder}", seconds, holder)


def users(records: Records, generation: str) -> list[str]:
    """Returns the holders of unexpired leases on a generation."""
    now = records.now_ms()
    found = []
    for name in records.names(f"{_READERS}{generation}/"):
        text = records.get(name)
        if text is not None and json.loads(text)["until"] > now:
            found.append(str(json.loads(text)["holder"]))
    return found


def forget_users(records: Records, generation: str) -> None:
    """Removes what ended leases on a generation left behind."""
    for name in records.names(f"{_READERS}{generation}/"):
        records.swap(name, records.get(name), None)


def lock_exports(records: Records, model: str, seconds: float = 15.0) -> Lease:
    """Takes the lease that makes this process the only writer of a model.

    Raises:
        FailedPreconditionError: another export of the model is running.
    """
    return Lease(records, _EXPORTER + model, seconds, f"export-{uuid.uuid4().hex[:8]}")
