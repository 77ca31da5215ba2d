"""Takes the cuts of a version as they are committed (docs/design/0008-cuts.md)."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import math
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hotrow.errors import (
    DataLossError,
    FailedPreconditionError,
    HotrowError,
    UnavailableError,
    is_full_disk,
)
from hotrow.protos import control_pb2
from hotrow.serving.data_plane.data_plane import DataPlane
from hotrow.serving.monitoring.log_line import about
from hotrow.serving.updates.cut_counts import CutCounts
from hotrow.serving.updates.cut_files import CutFiles
from hotrow.serving.updates.double_buffer import DoubleBuffer
from hotrow.serving.updates.finite_cuts import Gate, NotFiniteError
from hotrow.serving.updates.next_look import NextLook
from hotrow.serving.updates.retries import MOST_CRASHES, RETRY_SECONDS, Retries
from hotrow.serving.updates.shown_line import ShownLine
from hotrow.serving.updates.store_silence import StoreSilence
from hotrow.serving.updates.store_state import StoreReading, StoreState, lost_by
from hotrow.serving.updates.version_rows import VersionRows
from hotrow.serving.updates.wanted_cuts import WantedCuts, remembered_cuts, wanted_cuts
from hotrow.serving.wire.status import Code, RequestError, as_request_error
from hotrow.store.cuts import CutRecord, cuts_of
from hotrow.thread_priority import lower_priority

if TYPE_CHECKING:
    from hotrow.store.bound_rows import BoundRows
    from hotrow.store.spec import Generation

_LOG = logging.getLogger(__name__)

# Between two reads of the model's record, unless a cut is announced.
_LOOK_SECONDS = 0.1
# Between two checks whether the overlaid cuts have been folded.
_FOLD_SECONDS = 0.5
# Rows of cuts that are kept in files after they were folded: they are laid over the store's again
# if the store goes back in time.
_KNOWN_BYTES = 256 << 20
_MOST_KNOWN = 64
# Attempts to read cuts before a version is loaded; each fails if a cut is removed meanwhile.
_MOST_READS = 20


class CutFollower:
    """Brings cuts from a version's store to its servables, in a thread.

    Args:
        model: name of the version's model.
        version: its number.
        rows: its rows, in a shared store.
        data_plane: has the servables.
        counts: of cuts.
    """

    def __init__(
        self,
        model: str,
        version: int,
        rows: VersionRows,
        data_plane: DataPlane,
        counts: CutCounts,
    ) -> None:
        self._model = model
        self._version = version
        self._rows = rows
        self._data_plane = data_plane
        # A hash: the next control process finds the folder, whatever the model's name contains.
        name = f"{hashlib.sha256(model.encode()).hexdigest()[:16]}-{version}"
        self._files = CutFiles(data_plane.folder / "cuts" / name)
        self._counts = counts
        self._buffer: DoubleBuffer | None = None
        self._away = False  # as logged last
        self._refused = ""  # the cut and reason logged last
        self._gate = Gate()
        self._noted = 0, ""  # version and identity of the cut
        self._store = StoreReading()
        self._known: list[CutRecord] = []  # with rows in files, the oldest first
        self._lost = ""  # what the store has lost of what is shown
        self._silent = False
        self._reporting = threading.Lock()
        # When to read cuts even if the model's record is the same.
        self._due = math.inf
        self._retries = Retries()
        self._shown_line = ShownLine()
        self._next_look = NextLook()
        self._silence: StoreSilence | None = None
        self._thread: threading.Thread | None = None

    def newest(self) -> control_pb2.ShownCut:
        """Returns the state that a newly loaded version begins with.

        Raises:
            UnavailableError: the store does not answer; or what it has is damaged, which the next
                export mends.
            OSError: the disk is full or refuses.
        """
        try:
            return self._newest()
        except DataLossError as err:
            raise UnavailableError(f"{err}; the version loads after the next export") from err

    def _newest(self) -> control_pb2.ShownCut:
        bound = self._rows.bound()
        cuts = cuts_of(bound.store.records, bound.generation)
        for _ in range(_MOST_READS):
            low = int(bound.store.watermarks(bound.generation).min())  # after the cuts
            wanted = wanted_cuts(bound.generation, self._gate.takeable(cuts), None, low)
            if low < wanted.fence:
                raise DataLossError(
                    f"{bound.store.url}: the store went back in time: generation "
                    f"{bound.generation.generation} has lost rows of cut {wanted.fence:016x}; "
                    "export again"
                )
            try:
                return self._files.write(bound, wanted, contextlib.nullcontext)
            except NotFiniteError as err:
                if any(cut.folded for cut in cuts if cut.version >= err.version):
                    raise  # rows of before are gone
                self._refuse(err.version, err, given_up=False)
                self._gate.refuse(err)
            except DataLossError:
                # Raised again, unless an exporter removed a cut while it was read.
                before, cuts = cuts, cuts_of(bound.store.records, bound.generation)
                if cuts == before:
                    raise
        raise UnavailableError(f"cuts of {self._model} are forgotten faster than they are read")

    def follow(self, buffer: DoubleBuffer) -> None:
        """Starts to follow cuts for these servables."""
        self._buffer = buffer
        self._silence = StoreSilence(self._report_silence)
        self._thread = threading.Thread(target=self._run, name="cuts", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stops; finishes a cut that is being taken first."""
        self._next_look.close()
        if self._thread is not None:
            self._thread.join()
        self._next_look.unsubscribe()
        if self._silence is not None:
            self._silence.close()
        self._counts.forget(self._model, self._version)

    def delete_files(self) -> None:
        """Deletes the files of cuts; no servable may be loaded with them afterwards."""
        self._files.close()

    def _run(self) -> None:
        assert self._buffer is not None  # set by `follow`
        assert self._silence is not None
        lower_priority()
        pause = 0.0
        while (cause := self._next_look.wait(pause)) is not None:
            pause = _LOOK_SECONDS
            if not self._data_plane.has_begun():
                continue  # routes are still those of the previous process
            self._counts.count_look(self._model, self._version, cause)
            try:
                self._look(self._buffer, self._silence)
            except Exception as err:
                pause = RETRY_SECONDS
                if not self._away:
                    self._say(logging.ERROR, f"cuts cannot be followed: {as_request_error(err)}")
                self._away = True
            else:
                if self._away:
                    self._say(logging.INFO, "cuts are followed again")
                self._away = False

    def _look(self, buffer: DoubleBuffer, silence: StoreSilence) -> None:
        """Takes new cuts, if there are any, and notices a store that went back in time."""
        with silence.asking():
            bound = self._rows.bound()
            self._next_look.subscribe(bound)
            state = self._store.read(bound, time.monotonic() >= self._due)
            lost = ""
            if state is not None:
                self._due = 0.0  # until this look is complete
                lost = lost_by(bound, state, _newest(buffer))
        if state is None:
            return
        if lost:
            self._report_loss(buffer, lost)
        elif state.went_back:
            self._count_rewind("the store went back in time, but has what is shown")
        self._know(state.cuts)
        unfolded = [cut for cut in state.cuts if not cut.folded]
        self._counts.set_unfolded(self._model, self._version, unfolded)
        wanted = self._wanted(bound.generation, state, buffer)
        if wanted is not None and not self._take(buffer, wanted, bound, silence):
            return
        if state.went_back and (wanted is None or state.low < wanted.fence):
            buffer.check_rows()
        self._note(bound, state, buffer)
        if times := bound.count_overruled():
            self._counts.count_overruled(self._model, self._version, times)
        self._files.keep(buffer.shown(), self._known)
        if self._lost and not lost_by(bound, state, _newest(buffer)):
            self._report_found(buffer)
        # A fold changes only the cut's own record.
        self._due = math.inf
        if self._lost or (wanted is not None and wanted.layers):
            self._due = time.monotonic() + _FOLD_SECONDS

    def _wanted(
        self, generation: Generation, state: StoreState, buffer: DoubleBuffer
    ) -> WantedCuts | None:
        """Returns what to show; None: what is shown, of which the store has lost rows."""
        before = buffer.shown()
        oldest, newest = min(shown.version for shown in before), _newest(buffer)
        cuts = self._gate.takeable(state.cuts)
        version = cuts[-1].version if cuts else generation.row_version
        if cuts and version == newest.version and newest.identity not in ("", cuts[-1].identity):
            # Another cut of the same number: none of its rows are known.
            again = wanted_cuts(generation, cuts, cuts[-1].previous, state.low)
            return dataclasses.replace(again, missed=True)
        if version >= newest.version:
            return wanted_cuts(generation, cuts, oldest, state.low)
        # The store has lost the cut that is shown, or an export has withdrawn it: it stays until
        # another one comes. The rows that the store has lost are laid over it again.
        shown = self._record_of(newest)
        if shown is None or oldest != newest.version:
            return None
        return remembered_cuts(generation, shown, self._known, state.low)

    def _take(
        self, buffer: DoubleBuffer, wanted: WantedCuts, bound: BoundRows, silence: StoreSilence
    ) -> bool:
        """Shows a state; returns whether it could be."""
        try:
            self._show(buffer, wanted, self._files.write(bound, wanted, silence.asking), bound)
        except Exception as err:
            pause = self._retries.pause_after(wanted.version, err)
            self._due = time.monotonic() + pause
            self._refuse(wanted.version, err, given_up=math.isinf(pause))
            if isinstance(err, NotFiniteError):
                self._gate.refuse(err)
                self._due = 0.0  # for those before it
            return False
        if not self._gate.is_closed:
            self._refused = ""
            self._counts.accept(self._model, self._version)
        self._know(wanted.layers)
        return True

    def _know(self, cuts: Sequence[CutRecord]) -> None:
        """Remembers cuts whose rows are in files, the newest of them."""
        found = self._files.with_rows([*cuts, *self._known], _KNOWN_BYTES)
        self._known = found[-_MOST_KNOWN:]

    def _note(self, bound: BoundRows, state: StoreState, buffer: DoubleBuffer) -> None:
        """Notes in the lease by which cut all answers are."""
        shown = min(buffer.shown(), key=lambda cut: cut.version)
        noted = shown.version, shown.identity
        if noted == self._noted or shown.version == bound.generation.row_version:
            return
        record = next((cut for cut in state.cuts if _is(cut, shown)), self._record_of(shown))
        step, lineage = (0, "") if record is None else (record.step, record.lineage)
        try:
            bound.note_cut(shown.version, identity=shown.identity, step=step, lineage=lineage)
        except FailedPreconditionError:
            if not self._lost:
                raise
            return  # the store has lost the generation, too
        self._noted = noted

    def _record_of(self, shown: control_pb2.ShownCut) -> CutRecord | None:
        return next((cut for cut in self._known if _is(cut, shown)), None)

    def _report_loss(self, buffer: DoubleBuffer, lost: str) -> None:
        if lost == self._lost:
            return
        self._count_rewind(
            f"the store went back in time and has lost {lost}, which is shown: answers go on by "
            "it, and rows that cannot be had any more are refused; the next export repairs it"
        )
        self._noted = 0, ""  # an exporter learns of the cut by the lease
        self._lost = lost
        self._set_stale(buffer)

    def _report_found(self, buffer: DoubleBuffer) -> None:
        self._lost = ""
        self._set_stale(buffer)
        self._say(logging.INFO, "the store has what is shown again")

    def _count_rewind(self, line: str) -> None:
        self._counts.count_rewind(self._model, self._version)
        self._say(logging.ERROR, line)

    def _refuse(self, version: int, error: Exception, given_up: bool) -> None:
        """Counts a cut that is not taken; says so once for each cut and reason."""
        refusal = _refusal(error)
        reason = f"cut {version:016x} is not taken: {refusal}"
        if given_up:
            reason += f"; given up after {MOST_CRASHES} crashes, until the next cut"
        self._counts.refuse(self._model, self._version, RequestError(refusal.code, reason))
        if reason != self._refused:
            self._say(logging.ERROR, reason)
        self._refused = reason

    def _show(
        self,
        buffer: DoubleBuffer,
        wanted: WantedCuts,
        cut: control_pb2.ShownCut,
        bound: BoundRows,
    ) -> None:
        before = buffer.shown()
        if any(shown != cut for shown in before):
            buffer.show(cut, forget_cached=wanted.missed)
        if any(shown.version != cut.version for shown in before):
            oldest = min(shown.version for shown in before)
            self._counts.taken.take(
                self._model,
                self._version,
                [layer for layer in wanted.layers if layer.version > oldest],
                missed=wanted.missed,
                shown_ms=_ms_of_store(bound, buffer.routed_at),
            )
            if line := self._shown_line.of(wanted):
                self._say(logging.INFO, line)
        self._counts.show(self._model, self._version, wanted.version, wanted.step)

    def _report_silence(self, silent: bool) -> None:
        assert self._buffer is not None  # set by `follow`
        self._silent = silent
        self._set_stale(self._buffer)

    def _set_stale(self, buffer: DoubleBuffer) -> None:
        with self._reporting:
            buffer.set_stale(self._silent or bool(self._lost))
            self._counts.set_silent(self._model, self._version, self._silent)
            self._counts.set_lost(self._model, self._version, bool(self._lost))

    def _say(self, level: int, line: str) -> None:
        if not self._next_look.is_closed:
            text = f"{self._model}: version {self._version}: {line}"
            _LOG.log(level, text, extra=about(self._model, self._version), stacklevel=2)


def _refusal(error: Exception) -> RequestError:
    """Returns why a cut is not taken; a full disk is no unforeseen error."""
    if isinstance(error, OSError) and error.strerror:
        code = Code.RESOURCE_EXHAUSTED if is_full_disk(error) else Code.INTERNAL
        where = f": {error.filename}" if error.filename else ""
        return RequestError(code, f"{error.strerror}{where}")
    return as_request_error(error)


def _newest(buffer: DoubleBuffer) -> control_pb2.ShownCut:
    return max(buffer.shown(), key=lambda shown: shown.version)


def _ms_of_store(bound: BoundRows, moment: float) -> float | None:
    """Returns a moment of `time.monotonic` by the store's clock; None: it does not answer."""
    try:
        now_ms = bound.store.records.now_ms()
    except HotrowError:
        return None
    return now_ms - (time.monotonic() - moment) * 1000


def _is(cut: CutRecord, shown: control_pb2.ShownCut) -> bool:
    return bool(cut.version == shown.version and cut.identity == shown.identity)
