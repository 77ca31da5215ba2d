"""Leases of readers on a generation: who reads it, and by which cut."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hotrow.errors import FailedPreconditionError, NotFoundError
from hotrow.store.generations import Generations
from hotrow.store.leases import READERS, Lease, read_held
from hotrow.store.record_format import UNREADABLE, damaged, read_object
from hotrow.store.row_store import Records
from hotrow.store.spec import State

# Tries to change a lease that its holder renews at the same time.
_MOST_TRIES = 100

UNSEEN_SECONDS = 600.0
"""How long after the end of its lease a reader may come back: a partition ends leases, and a reader
that was stopped in order has removed its own. Its generation is not deleted before."""


class ReaderLease(Lease):
    """A reader's lease on a generation, which is not deleted meanwhile.

    The lease ends when the store is down for longer than it lasts, or loses its record in a
    failover. Exporters then do not wait for this reader. The first renewal that the store answers
    takes it again, with the same cut, if the generation exists.

    Attributes:
        lost: set while the generation does not exist, or is being deleted.
        overruled: version of the newest cut that an exporter folded although this reader answers by
            an earlier one (`overrule`), as of the last renewal; 0: none.
    """

    _comes_back = True

    def __init__(
        self,
        records: Records,
        generation: str,
        holder: str,
        seconds: float,
        follows_cuts: bool = True,
        metrics_url: str = "",
        server: str = "",
    ) -> None:
        """Takes the lease; no cut is recorded yet.

        Raises:
            FailedPreconditionError: records cannot be written.
        """
        self._generation = generation
        self._cut: dict[str, Any] = {"cut": 0}
        self._follows_cuts = follows_cuts
        self._metrics_url = metrics_url
        self._server = server
        self._since = records.now_ms()
        self.overruled = 0
        self._last_overruled = 0  # that was learned
        self._times_overruled = 0  # not counted yet
        super().__init__(records, f"{READERS}{generation}/{holder}", seconds, holder)

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
            FailedPreconditionError: the lease was lost or released, or the reader takes no cuts and
                was overruled.
            HotrowError: the store does not answer.
        """
        self._cut = {"cut": version}
        if identity:
            self._cut |= {"identity": identity, "step": step, "lineage": lineage}
        if self._released.is_set():
            raise FailedPreconditionError(f"{self.name} was released")
        with self._lock:
            held = self._renew()
        if not held:
            raise FailedPreconditionError(
                f"{self.name} was lost: the generation was deleted; export again"
            )
        self.check_not_overruled()

    def release_former(self, own: str) -> None:
        """Releases the leases of processes of the same server that ended without doing so.

        Args:
            own: with which the names of all holders in this process begin, and no others.

        Raises:
            HotrowError: the store does not answer.
        """
        if not self._server:
            return
        for name, text in _leases(self._records, self._generation):
            with contextlib.suppress(*UNREADABLE):  # it may be another server's
                reader = _reader(text, name)
                if reader.server == self._server and not reader.holder.startswith(own):
                    self._records.swap(name, text, None)

    def look(self) -> None:
        """Reads what an exporter has written into the lease since the last renewal.

        Raises:
            HotrowError: the store does not answer.
        """
        self._learn(self._records.get(self.name))

    def count_overruled(self) -> int:
        """Returns how often more than at the last call an exporter has overruled the reader."""
        times, self._times_overruled = self._times_overruled, 0
        return times

    def check_not_overruled(self) -> None:
        """Raises an error when the reader takes no cuts and an exporter did not wait for it.

        Raises:
            FailedPreconditionError: it was overruled, as of the last renewal.
        """
        if self.overruled and not self._follows_cuts:
            raise FailedPreconditionError(
                f"{self.name} was overruled: it held up incremental exports for longer or with "
                "more bytes than they allow (export.max_hold_seconds, export.max_hold_bytes), so "
                f"the rows of cut {self.overruled:016x} have replaced those that it reads; bind "
                "the version again"
            )

    def _facts(self) -> dict[str, Any]:
        facts = {**self._cut, "since": self._since}
        if not self._follows_cuts:
            facts["follows"] = False
        if self._metrics_url:
            facts["metrics"] = self._metrics_url
        if self._server:
            facts["server"] = self._server
        if self.overruled:
            facts["overruled"] = self.overruled
        return facts

    def _learn(self, text: str | None) -> None:
        """Takes over what an exporter has written into the lease."""
        with contextlib.suppress(*UNREADABLE):  # it is written anew
            held = {} if text is None else read_object(text, self.name)
            found = int(held.get("overruled", 0))
            self.overruled = max(self.overruled, found)
            if found > self._last_overruled:
                self._last_overruled = found
                self._times_overruled += 1
        if self._follows_cuts and self.overruled <= self._cut["cut"]:
            self.overruled = 0  # it answers by that cut now

    def _renew(self) -> bool:
        text = self._records.get(self.name)
        self._learn(text)
        now = self._records.now_ms()
        if text is not None and self._lasts(text, now):
            if self._state() is None:
                return False  # deleted in spite of this lease
            return self._records.swap(self.name, text, self._text(now)) or self._take_again()
        return self._take_again()

    def _lasts(self, text: str, now: int) -> bool:
        try:
            return read_held(text, self.name)[1] > now
        except UNREADABLE:
            return False  # it is written again: no other process uses this name

    def _take_again(self) -> bool:
        """Takes it after it ended; returns whether the generation is readable."""
        if self._state() is not State.COMPLETE:
            return False
        text = self._records.get(self.name)
        self._learn(text)
        taken = self._text(self._records.now_ms())
        if not self._records.swap(self.name, text, taken):
            return False
        # Check again: deletion changes the state before it looks for leases.
        if self._state() is State.COMPLETE:
            return True
        self._records.swap(self.name, taken, None)  # otherwise the next renewal would find it held
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
        since_ms: when it took the lease, by the store's clock; 0: an older version of Hotrow has
            it.
        overruled: version of the newest cut that was folded although it answers by an earlier one;
            0: none. Exports do not wait for such a reader before they fold.
        metrics_url: URL of its page of metrics; "": it has none, or has not said.
        server: the name of the server, as for `use`; "": it has none.
    """

    holder: str
    cut: int
    until_ms: int
    follows_cuts: bool = True
    identity: str = ""
    step: int = 0
    lineage: str = ""
    since_ms: int = 0
    overruled: int = 0
    metrics_url: str = ""
    server: str = ""


def use(
    records: Records,
    generation: str,
    holder: str,
    seconds: float = 30.0,
    follows_cuts: bool = True,
    metrics_url: str = "",
    server: str = "",
) -> ReaderLease:
    """Takes a lease on a generation for a reader; it is not deleted meanwhile.

    A reader takes it before it reads the generation's state and cuts.

    Args:
        records: records of the store.
        generation: its name.
        holder: a name that no other reader has.
        seconds: duration of the lease, unless it is renewed.
        follows_cuts: whether the reader takes cuts, so that exporters wait for it.
        metrics_url: URL of the reader's page of metrics; "": none.
        server: a name that only processes have which read for the same server one after the other;
            "": none. See `ReaderLease.release_former`.
    """
    return ReaderLease(records, generation, holder, seconds, follows_cuts, metrics_url, server)


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
    for name in records.names(f"{READERS}{generation}/"):
        text = records.get(name)
        if text is not None:  # else it was released meanwhile
            yield name, text


def check_lease(text: str, name: str) -> None:
    """Raises an error when a lease cannot be read.

    Raises:
        DataLossError, NewerRecordError: it cannot.
    """
    _reader(text, name)


def _reader(text: str, name: str) -> Reader:
    holder, until = read_held(text, name)
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
            since_ms=int(held.get("since", 0)),
            overruled=int(held.get("overruled", 0)),
            metrics_url=str(held.get("metrics", "")),
            server=str(held.get("server", "")),
        )
    except (ValueError, TypeError) as err:
        raise damaged(name, str(err)) from err


def overrule(records: Records, generation: str, reader: Reader, version: int) -> bool:
    """Notes in a reader's lease that a cut is folded although the reader answers by an earlier one.

    Args:
        records: records of the store.
        generation: its name.
        reader: as `readers` returned it.
        version: of the cut.

    Returns:
        False if the lease has ended, or the reader answers by another cut by now.
    """
    name = f"{READERS}{generation}/{reader.holder}"
    for _ in range(_MOST_TRIES):
        text = records.get(name)
        if text is None:
            return False
        held = read_object(text, name)
        if int(held.get("cut", 0)) != reader.cut:
            return False
        if records.swap(name, text, json.dumps({**held, "overruled": version})):
            return True
    raise FailedPreconditionError(f"{name} keeps changing; try again")


def forget_users(records: Records, generation: str) -> None:
    """Removes the leases on a generation that has no readers any more."""
    for name in records.names(f"{READERS}{generation}/"):
        records.swap(name, records.get(name), None)
