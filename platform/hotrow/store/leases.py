"""Leases: of a writer on a model here, of readers on a generation in `readers.py`.

A lease that is not renewed ends by the store's clock, so a process that dies releases it.

An exporter that lost its lease must stop: another one may write. A reader that lost its lease does
no harm, because row versions show which rows are too new for it (docs/design/0008-cuts.md). But
exporters would no longer wait for it, so it takes its lease again as soon as the store answers.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar

from hotrow.errors import FailedPreconditionError, HotrowError
from hotrow.store.process_identity import has_ended, identity_of
from hotrow.store.record_format import RECORD_FORMAT, UNREADABLE, damaged, read_object
from hotrow.store.row_store import Records

READERS = "lease/"
"""Prefix of the names of leases on generations."""
_EXPORTER = "export/"
_RENEWALS = 3.0  # per duration of a lease
_RELEASE_SECONDS = 2.0
_TRIES = 3  # another writer may come between reading and writing
_WATCH_SECONDS = 1.0
"""Between two looks at a lease that another process holds."""


class Lease:
    """A lease that a thread renews until it is released. Use it in a `with` statement.

    Attributes:
        lost: set when it ended without a release: the store did not answer for too long, or another
            holder took it.
        name: of its record.
        holder: this one's name in the record.
    """

    _comes_back = False  # whether to renew it after it was lost

    def __init__(self, records: Records, name: str, seconds: float, holder: str) -> None:
        """Takes the lease `name`.

        Raises:
            FailedPreconditionError: another holder has it.
        """
        self.lost = threading.Event()
        self._records = records
        self.name = name
        self._millis = int(seconds * 1000)
        self.holder = holder
        self._released = threading.Event()
        self._lock = threading.Lock()  # around reading and changing the record
        self._take()
        self._thread = threading.Thread(
            target=self._renew_until_released, name=f"lease {name}", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Raises an error when it is not held any more.

        Raises:
            FailedPreconditionError: the lease was lost.
        """
        if self.lost.is_set():
            raise _lost(self.name)

    def confirm(self) -> None:
        """Renews it now; raises an error when it is not held any more.

        Raises:
            FailedPreconditionError: the lease was lost.
            UnavailableError: the store does not answer.
        """
        with self._lock:
            self._renew_noting()
        self.check()

    def release(self) -> None:
        """Releases it; idempotent. If the store does not answer soon, the lease expires instead."""
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
        for _ in range(_TRIES):
            text, now = self._records.get(self.name), self._records.now_ms()
            self._check_may_take(text, now)
            if self._records.swap(self.name, text, self._text(now)):
                return
        raise FailedPreconditionError(f"{self.name} was just taken by another process")

    def _check_may_take(self, text: str | None, now: int) -> None:
        """Raises an error if another holder has it; text: its record."""
        if text is None:
            return
        holder, until = read_held(text, self.name)
        held = read_object(text, self.name)
        if until > now and not self._is_abandoned(held):
            raise FailedPreconditionError(
                f"{self.name} is held by {holder}, for {(until - now) / 1000:.0f} s unless it is "
                f"renewed; {self._advice(held)}"
            )

    def _renew(self) -> bool:
        """Extends it; returns whether it was still held."""
        text = self._records.get(self.name)
        if text is None or not self._is_mine(text):
            return False
        return self._records.swap(self.name, text, self._text(self._records.now_ms()))

    def _renew_noting(self) -> bool:
        """Extends it and notes whether it was lost; returns whether to go on with renewals."""
        held = self._renew()
        if not held and not self._released.is_set():
            self.lost.set()
        elif held and self._comes_back:
            self.lost.clear()
        return held or self._comes_back

    def _is_mine(self, text: str) -> bool:
        try:
            return read_held(text, self.name)[0] == self.holder
        except UNREADABLE:
            return False

    def _text(self, now: int) -> str:
        head = {"format": RECORD_FORMAT, "holder": self.holder, "until": now + self._millis}
        return json.dumps({**head, **self._facts()})

    def _facts(self) -> dict[str, Any]:
        """Returns the record's values besides holder and end."""
        return {}

    def _is_abandoned(self, held: dict[str, Any]) -> bool:
        """Returns whether the holder of an unexpired record surely does not hold it any more."""
        return False

    def _advice(self, held: dict[str, Any]) -> str:
        """Returns what can be done about another holder of an unexpired record."""
        return "wait until it has ended"

    def _renew_until_released(self) -> None:
        pause = self._millis / 1000 / _RENEWALS
        while not self._released.wait(pause):
            try:
                with self._lock:
                    goes_on = self._renew_noting()
            except HotrowError:
                continue  # the store is down: the next renewal shows whether it is still held
            except Exception:
                if self._released.is_set():
                    return  # `release` did not wait for the store, and its owner closed it
                raise
            if not goes_on:
                return

    def _give_back(self) -> None:
        self._thread.join()
        with contextlib.suppress(Exception):  # the store may be closed by now
            text = self._records.get(self.name)
            if text is not None and self._is_mine(text):
                self._records.swap(self.name, text, self._text_after())

    def _text_after(self) -> str | None:
        """Returns the record to leave at the release; None: none."""
        return None


class WatchedLease:
    """A lease that another process holds, for one that works on its behalf.

    Args:
        records: of the store.
        name: of the lease's record.
        holder: who has to hold it.
    """

    def __init__(self, records: Records, name: str, holder: str) -> None:
        self._records = records
        self._name = name
        self._holder = holder
        self._seen = -math.inf  # when it was last held

    def check(self) -> None:
        """Raises an error when it is not held any more, as its record says once a second.

        Raises:
            FailedPreconditionError: the lease was lost.
            UnavailableError: the store does not answer.
            DataLossError, NewerRecordError: the record cannot be read.
        """
        now = time.monotonic()
        if now < self._seen + _WATCH_SECONDS:
            return
        text = self._records.get(self._name)
        if text is None or read_held(text, self._name)[0] != self._holder:
            raise _lost(self._name)
        self._seen = now


class ExportLock(Lease):
    """The lease of the only writer of a model.

    A store that goes back in time has the lock of an export that has ended since. No process renews
    it, and the next export need not wait until it expires: the record names the process of the
    holder, and its kernel knows whether that has ended. So does this process of its own locks.
    Whatever a holder elsewhere is, its lock stands until it expires.

    A holder can lend it to another process, which gives it back when it releases it. The lock is
    not free at any time between.
    """

    _held: ClassVar[set[str]] = set()  # holders in this process

    def __init__(
        self,
        records: Records,
        name: str,
        seconds: float,
        trainer: str = "",
        admin: str = "",
        lender: str = "",
    ) -> None:
        """Takes the lock.

        Args:
            records: of the store.
            name: of the record.
            seconds: how long it lasts unless it is renewed.
            trainer: the run that holds it for as long as it publishes by itself; "": an export.
            admin: `host:port` of the trainer's admin service; "": it has none.
            lender: who lends it (`lend`); its record then goes on to name the lender's trainer.

        Raises:
            FailedPreconditionError: another export has it; with a lender: this one has it no more.
        """
        self._lender = lender
        self._lent: dict[str, Any] = {}  # the lender's record
        given = {"trainer": trainer, "admin": admin}
        self._trainer = {name: value for name, value in given.items() if value}
        self._process = identity_of(os.getpid())
        holder = f"export-{uuid.uuid4().hex[:8]}"
        self._held.add(holder)  # before the record exists
        try:
            super().__init__(records, name, seconds, holder)
        except BaseException:
            self._held.discard(holder)
            raise

    def release(self) -> None:
        """Releases it; idempotent. The holder writes nothing more from now on."""
        super().release()
        self._held.discard(self.holder)  # if the store did not answer, it is free from now on

    @contextlib.contextmanager
    def lend(self) -> Iterator[str]:
        """Lends it, until the end of the `with` statement; yields the lender's name.

        While the other process has it, this one is noted as `lost`.

        Raises:
            FailedPreconditionError: it was lost.
            UnavailableError: the store does not answer.
        """
        self.confirm()
        self._comes_back = True
        try:
            yield self.holder
        finally:
            with self._lock:
                with contextlib.suppress(HotrowError):
                    self._renew_noting()
                self._comes_back = False

    def _check_may_take(self, text: str | None, now: int) -> None:
        if not self._lender:
            super()._check_may_take(text, now)
            return
        held = {} if text is None else read_object(text, self.name)
        if held.get("holder") != self._lender:
            raise FailedPreconditionError(
                f"{self.name} is not held any more by {self._lender}, the trainer that began this "
                "export"
            )
        self._lent = held
        self._trainer = {name: held[name] for name in ("trainer", "admin") if name in held}

    def _text_after(self) -> str | None:
        if not self._lent or has_ended(str(self._lent.get("process", ""))):
            return None
        return json.dumps({**self._lent, "until": self._records.now_ms() + self._millis})

    def _facts(self) -> dict[str, Any]:
        lender = {"lender": self._lender} if self._lender else {}
        return {"process": self._process, **self._trainer, **lender}

    def _advice(self, held: dict[str, Any]) -> str:
        trainer, admin = held.get("trainer", ""), held.get("admin", "")
        if not trainer and not admin:
            return super()._advice(held)
        whose = f"the trainer of {trainer}" if trainer else "a trainer"
        if held.get("lender"):
            return (
                f"it is a full export of {whose}: stop the trainer first; if the trainer has "
                "ended, wait until the export has"
            )
        if not admin:
            return (
                f"it is {whose}, which publishes by itself and has no admin service "
                "(online.admin): stop it first"
            )
        return (
            f"it is {whose}, which publishes by itself and answers at {admin}: ask it (`platform "
            "status`, `platform rollback`), or stop it first"
        )

    def _is_abandoned(self, held: dict[str, Any]) -> bool:
        process = str(held.get("process", ""))
        if not process:
            return False  # an older version of Hotrow wrote it
        if process == self._process:
            return held["holder"] not in self._held
        return has_ended(process)


def _lost(name: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{name} was lost: another process took it, or the store was away for too long; try again"
    )


def read_held(text: str, name: str) -> tuple[str, int]:
    """Returns the holder of a lease, and its end in milliseconds of the store's clock.

    Raises:
        DataLossError, NewerRecordError: it cannot be read.
    """
    held = read_object(text, name)
    holder, until = held.get("holder"), held.get("until")
    if not isinstance(holder, str) or not isinstance(until, int):
        raise damaged(name, f"holder: {holder!r}, until: {until!r}")
    return holder, until


def lock_exports(
    records: Records,
    model: str,
    seconds: float = 15.0,
    *,
    trainer: str = "",
    admin: str = "",
    lender: str = "",
) -> ExportLock:
    """Takes the lease that makes this process the only writer of a model.

    Args:
        records: of the store.
        model: its name.
        seconds: how long the lease lasts unless it is renewed.
        trainer: the run that holds it for as long as it publishes by itself; "": an export.
        admin: `host:port` of the trainer's admin service, for operators; "": it has none.
        lender: the holder that lends it to this process (`ExportLock.lend`), which gives it back
            by its release; "": it is free.

    Raises:
        FailedPreconditionError: another export of the model is running, or the lender does not hold
            the lease any more.
    """
    return ExportLock(records, _EXPORTER + model, seconds, trainer, admin, lender)


@dataclass(frozen=True)
class Exporter:
    """The process that holds the export lock of a model.

    Attributes:
        holder: its name in the lock.
        trainer: the run of a trainer that publishes by itself; "": it is an export.
        admin: `host:port` of the trainer's admin service; "": it has none.
        process: its identity (`process_identity`); "": not known.
        lender: name in the lock of the trainer that lent it to this full export; "": not lent.
    """

    holder: str
    trainer: str
    admin: str
    process: str
    lender: str = ""


def exporter_of(records: Records, model: str) -> Exporter | None:
    """Returns who holds the export lock of a model; None: the lock is free or has expired.

    Raises:
        DataLossError, NewerRecordError: the lock's record cannot be read.
    """
    name = _EXPORTER + model
    text = records.get(name)
    if text is None:
        return None
    holder, until = read_held(text, name)
    if until <= records.now_ms():
        return None
    held = read_object(text, name)
    facts = (str(held.get(key, "")) for key in ("trainer", "admin", "process", "lender"))
    return Exporter(holder, *facts)
