"""Leases of readers on a generation, and of a writer on a model.

A lease that is not renewed ends by the store's clock, so a process that dies releases it.

An exporter that lost its lease must stop: another one may write. A reader that lost its lease does
no harm, because row versions show which rows are too new for it (docs/design/0008-cuts.md). But
exporters would no longer wait for it, so it takes its lease again as soon as the store answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar

from hotrow.errors import FailedPreconditionError, HotrowError, NotFoundError
from hotrow.store.generations import Generations
from hotrow.store.process_identity import has_ended, identity_of
from hotrow.store.record_format import RECORD_FORMAT, UNREADABLE, damaged, read_object
from hotrow.store.row_store import Records
from hotrow.store.spec import State

_READERS = "lease/"
_EXPORTER = "export/"
_RENEWALS = 3.0  # per duration of a lease
_RELEASE_SECONDS = 2.0

UNSEEN_SECONDS = 600.0
"""How long after the end of its lease a reader may come back: a partition ends leases, and a reader
that was stopped in order has removed its own. Its generation is not deleted before."""


class Lease:
    """A lease that a thread renews until it is released. Use it in a `with` statement.

    Attributes:
        lost: set when it ended without a release: the store did not answer for too long, or another
            holder took it.
    """

    _comes_back = False  # whether to renew it after it was lost

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
            raise FailedPreconditionError(
                f"{self._name} was lost: another process took it, or the store was away for too "
                "long; try again"
            )

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
        text = self._records.get(self._name)
        now = self._records.now_ms()
        if text is not None:
            holder, until = _held(text, self._name)
            if until > now and not self._is_abandoned(read_object(text, self._name)):
                seconds = (until - now) / 1000
                raise FailedPreconditionError(
                    f"{self._name} is held by {holder}, for {seconds:.0f} s unless it is "
                    "renewed; wait until it has ended"
                )
        if not self._records.swap(self._name, text, self._text(now)):
            raise FailedPreconditionError(f"{self._name} was just taken by another process")

    def _renew(self) -> bool:
        """Extends it; returns whether it was still held."""
        text = self._records.get(self._name)
        if text is None or not self._is_mine(text):
            return False
        return self._records.swap(self._name, text, self._text(self._records.now_ms()))

    def _is_mine(self, text: str) -> bool:
        try:
            return _held(text, self._name)[0] == self._holder
        except UNREADABLE:
            return False

    def _text(self, now: int) -> str:
        head = {"format": RECORD_FORMAT, "holder": self._holder, "until": now + self._millis}
        return json.dumps({**head, **self._facts()})

    def _facts(self) -> dict[str, Any]:
        """Returns the record's values besides holder and end."""
        return {}

    def _is_abandoned(self, held: dict[str, Any]) -> bool:
        """Returns whether the holder of an unexpired record surely does not hold it any more."""
        return False

    def _renew_until_released(self) -> None:
        pause = self._millis / 1000 / _RENEWALS
        while not self._released.wait(pause):
            try:
                with self._lock:
                    held = self._renew()
            except HotrowError:
                continue  # the store is down: the next renewal shows whether it is still held
            except Exception:
                if self._released.is_set():
                    return  # `release` did not wait for the store, and its owner closed it
                raise
            if held:
                self.lost.clear()
            elif not self._released.is_set():
                self.lost.set()
                if not self._comes_back:
                    return

    def _give_back(self) -> None:
        self._thread.join()
        with contextlib.suppress(Exception):  # the store may be closed by now
            text = self._records.get(self._name)
            if text is not None and self._is_mine(text):
                self._records.swap(self._name, text, None)


class ExportLock(Lease):
    """The lease of the only writer of a model.

    A store that goes back in time has the lock of an export that has ended since. Nobody renews it,
    and the next export need not wait until it expires: the record names the process of the holder,
    and its kernel knows whether that has ended. So does this process of its own locks. Whatever a
    holder elsewhere is, its lock stands until it expires.
    """

    _held: ClassVar[set[str]] = set()  # holders in this process

    def __init__(self, records: Records, name: str, seconds: float) -> None:
        """Takes the lock.

        Raises:
            FailedPreconditionError: another export has it.
        """
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
        self._held.discard(self._holder)
        super().release()

    def _facts(self) -> dict[str, Any]:
        return {"process": self._process}

    def _is_abandoned(self, held: dict[str, Any]) -> bool:
        process = str(held.get("process", ""))
        if not process:
            return False  # an older version of Hotrow wrote it
        if process == self._process:
            return held["holder"] not in self._held
        return has_ended(process)


class ReaderLease(Lease):
    """A reader's lease on a generation, which is not deleted meanwhile.

    The lease ends when the store is down for longer than it lasts, or loses its record in a
    failover. Exporters then do not wait for this reader. The first renewal that the store answers
    takes it again, with the same cut, if the generation exists.

    Attributes:
        lost: set while the generation does not exist, or is being deleted.
    """

    _comes_back = True

    def __init__(
        self,
        records: Records,
        generation: str,
        holder: str,
        seconds: float,
        follows_cuts: bool = True,
    ) -> None:
        """Takes the lease; no cut is recorded yet.

        Raises:
            FailedPreconditionError: records cannot be written.
        """
        self._generation = generation
        self._cut: dict[str, Any] = {"cut": 0}
        self._follows_cuts = follows_cuts
        super().__init__(records, f"{_READERS}{generation}/{holder}", seconds, holder)

    def note_cut(
        self, version: int, *, identity: str = "", step: int = 0, lineage: str = ""
    ) -> None:
        """Records that the reader answers by a cut, and no longer by earlier ones.

        The record has the cut at once, and all renewals keep it. If the store does not answer, the
        next renewal writes it.

        Args:
            version: version of the cut's rows; 0: rows as exported.
            identity: of its record; an exporter needs these when the store has lost the cut.
            step: of its record.
            lineage: of its record.

        Raises:
            FailedPreconditionError: the lease was lost or released.
            HotrowError: the store does not answer.
        """
        self._cut = {"cut": version}
        if identity:
            self._cut |= {"identity": identity, "step": step, "lineage": lineage}
        if self._released.is_set():
            raise FailedPreconditionError(f"{self._name} was released")
        with self._lock:
            held = self._renew()
        if not held:
            raise FailedPreconditionError(
                f"{self._name} was lost: the generation was deleted; export again"
            )

    def _facts(self) -> dict[str, Any]:
        return {**self._cut, **({} if self._follows_cuts else {"follows": False})}

    def _renew(self) -> bool:
        text = self._records.get(self._name)
        now = self._records.now_ms()
        if text is not None and self._lasts(text, now):
            if self._state() is None:
                return False  # deleted in spite of this lease
            return self._records.swap(self._name, text, self._text(now)) or self._take_again()
        return self._take_again()

    def _lasts(self, text: str, now: int) -> bool:
        try:
            return _held(text, self._name)[1] > now
        except UNREADABLE:
            return False  # it is written anew: nobody else uses this name

    def _take_again(self) -> bool:
        """Takes it after it ended; returns whether the generation is readable."""
        if self._state() is not State.COMPLETE:
            return False
        text = self._records.get(self._name)
        taken = self._text(self._records.now_ms())
        if not self._records.swap(self._name, text, taken):
            return False
        # Check again: deletion changes the state before it looks for leases.
        if self._state() is State.COMPLETE:
            return True
        self._records.swap(self._name, taken, None)  # otherwise the next renewal would find it held
        return False

    def _state(self) -> State | None:
        try:
            return Generations(self._records).get(self._generation).state
        except NotFoundError:
            return None


@dataclass(frozen=True)
class Reader:
    """A holder of an unexpired lease on a generation.

    Attributes:
        holder: its name.
        cut: version of the rows of the newest cut that it answers by; 0: it answers by rows as
            exported, or has not read cuts yet.
        follows_cuts: whether it takes newer cuts; otherwise rows must not change until it has
            ended.
        until_ms: when the lease ends by the store's clock, unless it is renewed.
        identity, step, lineage: of that cut's record; "": it has not said.
    """

    holder: str
    cut: int
    until_ms: int
    follows_cuts: bool = True
    identity: str = ""
    step: int = 0
    lineage: str = ""


def use(
    records: Records,
    generation: str,
    holder: str,
    seconds: float = 30.0,
    follows_cuts: bool = True,
) -> ReaderLease:
    """Takes a lease on a generation for a reader; it is not deleted meanwhile.

    A reader takes it before it reads the generation's state and cuts.

    Args:
        records: records of the store.
        generation: its name.
        holder: a name that no other reader has.
        seconds: duration of the lease, unless it is renewed.
        follows_cuts: whether the reader takes cuts, so that exporters wait for it.
    """
    return ReaderLease(records, generation, holder, seconds, follows_cuts)


def readers(records: Records, generation: str) -> list[Reader]:
    """Returns the unexpired readers of a generation, in the order of their names.

    Raises:
        DataLossError, NewerRecordError: a lease cannot be read, so that it is not known whether
            its reader lives.
    """
    now = records.now_ms()
    found = [_reader(text, name) for name, text in _leases(records, generation)]
    return [reader for reader in found if reader.until_ms > now]


def users(records: Records, generation: str, unseen_seconds: float = 0.0) -> list[str]:
    """Returns the holders of leases on a generation, also of those that cannot be read.

    Args:
        records: records of the store.
        generation: its name.
        unseen_seconds: holders whose lease ended at most so long ago are among them.
    """
    now = records.now_ms()
    found = []
    for name, text in _leases(records, generation):
        try:
            reader = _reader(text, name)
        except UNREADABLE as err:
            found.append(f"{name.rpartition('/')[2]} ({err})")
            continue
        ended = (now - reader.until_ms) / 1000
        if ended < 0:
            found.append(reader.holder)
        elif ended < unseen_seconds:
            found.append(
                f"{reader.holder} (its lease ended {ended:.0f} s ago without a release: it may be "
                "cut off from the store)"
            )
    return found


def _leases(records: Records, generation: str) -> Iterator[tuple[str, str]]:
    """Yields names and texts of all leases on a generation."""
    for name in records.names(f"{_READERS}{generation}/"):
        text = records.get(name)
        if text is not None:  # else it was released meanwhile
            yield name, text


def _held(text: str, name: str) -> tuple[str, int]:
    """Returns the holder and the end of a lease."""
    held = read_object(text, name)
    holder, until = held.get("holder"), held.get("until")
    if not isinstance(holder, str) or not isinstance(until, int):
        raise damaged(name, f"holder: {holder!r}, until: {until!r}")
    return holder, until


def check_lease(text: str, name: str) -> None:
    """Raises an error when a lease cannot be read.

    Raises:
        DataLossError, NewerRecordError: it cannot.
    """
    _reader(text, name)


def _reader(text: str, name: str) -> Reader:
    holder, until = _held(text, name)
    held = read_object(text, name)
    try:
        return Reader(
            holder=holder,
            cut=int(held.get("cut", 0)),
            until_ms=until,
            follows_cuts=bool(held.get("follows", True)),
            identity=str(held.get("identity", "")),
            step=int(held.get("step", 0)),
            lineage=str(held.get("lineage", "")),
        )
    except (ValueError, TypeError) as err:
        raise damaged(name, str(err)) from err


def forget_users(records: Records, generation: str) -> None:
    """Removes the leases on a generation that nobody reads any more."""
    for name in records.names(f"{_READERS}{generation}/"):
        records.swap(name, records.get(name), None)


def lock_exports(records: Records, model: str, seconds: float = 15.0) -> Lease:
    """Takes the lease that makes this process the only writer of a model.

    Raises:
        FailedPreconditionError: another export of the model is running.
    """
    return ExportLock(records, _EXPORTER + model, seconds)
