"""Folds the cuts which servers have taken, in a thread."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence

from hotrow.errors import HotrowError
from hotrow.hold_bounds import HoldBounds
from hotrow.store.cuts import CutRecord, check_blocks, cuts_of, folded_to
from hotrow.store.holding import Readers, is_overruled
from hotrow.store.leases import WatchedLease
from hotrow.store.readers import readers
from hotrow.store.row_store import RowStore
from hotrow.store.spec import Generation
from hotrow.store.taken_cuts import fold_taken
from hotrow.trainer.checkpoint.outcome import EXPECTED, as_failure

END_SECONDS = 10.0
"""How long folding may take when the trainer ends; the next trainer folds the rest."""
_LOOK_SECONDS = 1.0
"""Between two looks at the cuts, at most: which servers take them, and which do not."""
_LEAST_SECONDS = 0.05
_CHECK_MS = 1000
"""Age from which a cut that a server has not taken is checked."""
_CHECK_BYTES = 8 << 20
"""Of cuts that one look reads, about."""


class _BrokenOffError(Exception):
    """Folding is broken off: the trainer ends, or the store is needed for something else."""


class Folding:
    """Folds cuts a while after their commit, several at once.

    Args:
        connect: opens the store, for this thread alone.
        seconds: how long cuts are collected before they are folded.
        bounds: how long a reader may hold up folding.
        note: called with the version of the newest folded cut (0: none is known), and with the
            number of cuts that are not folded.
        fail: called with why folding has failed; `follow` begins anew.
        report: called with lines for the user.
    """

    def __init__(
        self,
        connect: Callable[[], RowStore],
        *,
        seconds: float,
        bounds: HoldBounds,
        note: Callable[[int, int], None],
        fail: Callable[[HotrowError], None],
        report: Callable[[str], None],
    ) -> None:
        self._connect = connect
        self._seconds = seconds
        self._bounds = bounds
        self._note = note
        self._fail = fail
        self._report = report
        self._newest = 0  # version of the newest folded cut
        self._store: RowStore | None = None
        self._followed: tuple[Generation, str, str] | None = None
        self._undo_cuts = 0
        self._due = 0.0  # when to fold next
        self._ending = threading.Event()
        self._end = math.inf
        self._wanted = threading.Event()  # someone waits for the lock
        self._checked = 0  # version of the last cut that was checked
        self._lock = threading.Lock()  # while cuts are folded
        self._thread = threading.Thread(target=self._run, name="folder", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def hold(self) -> None:
        """Breaks off what is being folded; nothing is folded until `follow`."""
        self._wanted.set()
        with self._lock:
            self._wanted.clear()
            self._followed = None

    def follow(self, generation: Generation, lock: str, holder: str, undo_cuts: int) -> None:
        """Folds the cuts of this generation from now on, while the export lock is held.

        Args:
            generation: with its current record.
            lock: name of the export lock.
            holder: who holds it.
            undo_cuts: for how many of the newest cuts to keep what they replace.
        """
        with self._lock:
            self._followed, self._undo_cuts = (generation, lock, holder), undo_cuts
            self._due = time.monotonic() + self._seconds

    def close(self) -> None:
        """Folds what servers have taken, as far as that takes no longer than 10 s, and ends."""
        self._end = time.monotonic() + END_SECONDS
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._store is not None:
            with contextlib.suppress(HotrowError):
                self._store.close()

    # --- the thread ---

    def _run(self) -> None:
        pause = max(_LEAST_SECONDS, min(self._seconds, _LOOK_SECONDS))
        is_last = False
        while not is_last:
            is_last = self._ending.wait(pause)
            with self._lock:
                if self._followed is not None:
                    self._look(*self._followed, is_last or time.monotonic() >= self._due)

    def _look(self, generation: Generation, lock: str, holder: str, may_fold: bool) -> None:
        """Folds what is due, and checks what servers await; follows nothing after a failure."""
        try:
            if self._store is None:
                self._store = self._connect()
            cuts = cuts_of(self._store.records, generation)
            low = int(self._store.watermarks(generation).min())  # after the cuts
            # Servers answer by what was folded, and may need what a failover has undone of it.
            if may_fold or low < folded_to(cuts):
                watched = WatchedLease(self._store.records, lock, holder)
                cuts = self._fold(self._store, generation, watched, cuts, low)
            self._count(cuts)
            self._check_awaited(self._store, generation, cuts)
        except _BrokenOffError:
            pass
        except EXPECTED as err:
            self._stop(as_failure(err))
        except BaseException as err:  # a defect: publishing must not go on as if all were well
            self._stop(HotrowError(f"folding failed: {type(err).__name__}: {err}"))

    def _stop(self, failure: HotrowError) -> None:
        self._followed = None
        self._fail(failure)

    def _fold(
        self,
        store: RowStore,
        generation: Generation,
        lock: WatchedLease,
        cuts: list[CutRecord],
        low: int,
    ) -> list[CutRecord]:
        """Folds the cuts that servers have taken; returns those that are left.

        Raises:
            DataLossError: the store has lost rows that no cut has.
        """
        first = next((cut for cut in cuts if not cut.folded or low < cut.version), None)
        if first is None:
            self._due = time.monotonic() + self._seconds
            return cuts
        there = Readers(store.records, generation, cuts, self._bounds, self._report)
        if low >= cuts[0].previous and not there.let_fold(first.version):
            return cuts  # and tries again in the next look
        fold_taken(
            store,
            generation,
            lock,
            lambda line: self._check(),
            undo_cuts=self._undo_cuts,
            bounds=self._bounds,
        )
        self._due = time.monotonic() + self._seconds
        return cuts_of(store.records, generation)

    def _count(self, cuts: Sequence[CutRecord]) -> None:
        self._newest = max([cut.version for cut in cuts if cut.folded], default=self._newest)
        self._note(self._newest, sum(not cut.folded for cut in cuts))

    def _check_awaited(
        self, store: RowStore, generation: Generation, cuts: Sequence[CutRecord]
    ) -> None:
        """Checks cuts that a server should have taken by now, some of them in each look, in turn.

        A store that went back in time may have lost blocks of any of them. Then no server can take
        that cut, or a later one, and folding, which would notice that, waits until they are
        overruled.

        Raises:
            DataLossError: a block is missing or damaged.
        """
        there = readers(store.records, generation.generation)
        taken = [one.cut for one in there if one.follows_cuts and not is_overruled(one)]
        now_ms = store.records.now_ms()
        awaited = [
            cut
            for cut in cuts
            if taken
            and cut.version > min(taken)
            # One of a later time is from before the store's clock was set back.
            and not now_ms - _CHECK_MS < cut.committed_ms <= now_ms
        ]
        read = 0
        for cut in sorted(awaited, key=lambda cut: (cut.version <= self._checked, cut.version)):
            check_blocks(store, generation, cut)
            self._checked = cut.version
            read += cut.bytes
            if read >= _CHECK_BYTES:
                break

    def _check(self) -> None:
        if self._wanted.is_set() or time.monotonic() > self._end:
            raise _BrokenOffError
