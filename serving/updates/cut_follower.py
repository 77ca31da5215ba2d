"""Takes the cuts of a version as they are committed (docs/design/0008-cuts.md)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import math
import threading
import time

from hotrow.errors import DataLossError, UnavailableError
from hotrow.protos import control_pb2
from hotrow.serving.data_plane.data_plane import DataPlane
from hotrow.serving.data_plane.executable import ServerEndedError
from hotrow.serving.updates.cut_counts import CutCounts
from hotrow.serving.updates.cut_files import CutFiles
from hotrow.serving.updates.double_buffer import DoubleBuffer
from hotrow.serving.updates.finite_cuts import Gate, NotFiniteError
from hotrow.serving.updates.store_silence import StoreSilence
from hotrow.serving.updates.version_rows import VersionRows
from hotrow.serving.updates.wanted_cuts import WantedCuts, wanted_cuts
from hotrow.serving.wire.status import Code, RequestError, as_request_error
from hotrow.store.cuts import cuts_of
from hotrow.store.generations import Generations

_LOG = logging.getLogger(__name__)

# Between two reads of the model's record.
_LOOK_SECONDS = 0.1
# Between two checks whether the overlaid cuts have been folded.
_FOLD_SECONDS = 0.5
# Attempts to read cuts before a version is loaded; each fails if a cut is removed meanwhile.
_MOST_READS = 20
# After a failure; doubled while the same cut fails.
_RETRY_SECONDS = 0.5
_LONGEST_RETRY_SECONDS = 8.0
# After a cut that ended the executable: requests fail each time until it has restarted.
_LONGEST_CRASH_RETRY_SECONDS = 60.0
# Of one cut; then the next one is waited for.
_MOST_CRASHES = 5


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
        self._noted = 0
        # The model's record at the last complete look, and when to read cuts even if it is equal.
        self._seen: tuple[int, int] | None = None
        self._due = math.inf
        self._retry: tuple[int, float] = (0, 0.0)  # version of the cut, seconds
        self._crashes = 0  # of that cut
        self._closed = threading.Event()
        self._silence: StoreSilence | None = None
        self._thread: threading.Thread | None = None

    def newest(self) -> control_pb2.ShownCut:
        """Returns the state that a newly loaded version begins with.

        Raises:
            HotrowError: the store does not answer, or the cut is damaged.
            OSError: the disk is full or refuses.
        """
        bound = self._rows.bound()
        cuts = cuts_of(bound.store.records, bound.generation)
        for _ in range(_MOST_READS):
            wanted = wanted_cuts(bound.generation, self._gate.takeable(cuts), None)
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
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        if self._silence is not None:
            self._silence.close()
        self._counts.forget(self._model, self._version)

    def delete_files(self) -> None:
        """Deletes the files of cuts; no servable may be loaded with them afterwards."""
        self._files.close()

    def _run(self) -> None:
        assert self._buffer is not None  # set by `follow`
        assert self._silence is not None
        pause = 0.0
        while not self._closed.wait(pause):
            pause = _LOOK_SECONDS
            if not self._data_plane.has_begun():
                continue  # routes are still those of the previous process
            try:
                self._look(self._buffer, self._silence)
            except Exception as err:
                pause = _RETRY_SECONDS
                if not self._away:
                    self._say(logging.ERROR, f"cuts cannot be followed: {as_request_error(err)}")
                self._away = True

    def _look(self, buffer: DoubleBuffer, silence: StoreSilence) -> None:
        """Takes new cuts, if there are any."""
        with silence.asking():
            bound = self._rows.bound()
            generation = bound.generation
            record = Generations(bound.store.records).model(generation.model)
            seen = record.epoch, record.seq
            changed = seen != self._seen or time.monotonic() >= self._due
            cuts = cuts_of(bound.store.records, generation) if changed else []
        if self._away:
            self._away = False
            self._say(logging.INFO, "cuts are followed again")
        if not changed:
            return
        before = buffer.shown()
        oldest, newest = (f(shown.version for shown in before) for f in (min, max))
        wanted = wanted_cuts(generation, self._gate.takeable(cuts), oldest)
        try:
            # Otherwise a cut that is shown was damaged in the store later: it stays until an export
            # writes it again.
            if wanted.version >= newest:
                self._show(buffer, wanted, self._files.write(bound, wanted, silence.asking))
        except Exception as err:
            pause = self._retry_seconds(wanted.version, err)
            self._seen, self._due = seen, time.monotonic() + pause
            self._refuse(wanted.version, err, given_up=math.isinf(pause))
            if isinstance(err, NotFiniteError):
                self._gate.refuse(err)
                self._due = 0.0  # for those before it
            return
        if not self._gate.is_closed:
            self._refused = ""
            self._counts.accept(self._model, self._version)
        now = buffer.shown()
        shown = min(cut.version for cut in now)
        if shown != self._noted and shown != generation.row_version:
            bound.note_cut(shown)
            self._noted = shown
        self._files.keep(now)
        # A fold changes only the cut's own record.
        self._seen, self._due = seen, math.inf
        if wanted.layers:
            self._due = time.monotonic() + _FOLD_SECONDS

    def _refuse(self, version: int, error: Exception, given_up: bool) -> None:
        """Counts a cut that is not taken; says so once for each cut and reason."""
        refusal = _refusal(error)
        reason = f"cut {version:016x} is not taken: {refusal}"
        if given_up:
            reason += f"; given up after {_MOST_CRASHES} crashes, until the next cut"
        self._counts.refuse(self._model, self._version, RequestError(refusal.code, reason))
        if reason != self._refused:
            self._say(logging.ERROR, reason)
        self._refused = reason

    def _show(self, buffer: DoubleBuffer, wanted: WantedCuts, cut: control_pb2.ShownCut) -> None:
        before = buffer.shown()
        if any(shown != cut for shown in before):
            buffer.show(cut, forget_cached=wanted.missed)
        if any(shown.version != cut.version for shown in before):
            self._counts.count_taken(self._model, self._version)
            rows = 0 if wanted.newest is None else wanted.newest.rows
            self._say(
                logging.INFO, f"shows step {wanted.step} (cut {wanted.version:016x}, {rows} rows)"
            )
        self._counts.show(self._model, self._version, wanted.version, wanted.step)

    def _retry_seconds(self, version: int, error: Exception) -> float:
        crashed = isinstance(error, ServerEndedError)
        longest = _LONGEST_CRASH_RETRY_SECONDS if crashed else _LONGEST_RETRY_SECONDS
        known, seconds = self._retry
        seconds = _RETRY_SECONDS if known != version else min(2 * seconds, longest)
        self._retry = version, seconds
        self._crashes = crashed + (self._crashes if known == version else 0)
        return math.inf if self._crashes >= _MOST_CRASHES else seconds

    def _report_silence(self, silent: bool) -> None:
        assert self._buffer is not None  # set by `follow`
        self._buffer.set_stale(silent)
        self._counts.set_stale(self._model, self._version, silent)

    def _say(self, level: int, line: str) -> None:
        if not self._closed.is_set():
            _LOG.log(level, f"{self._model}: version {self._version}: {line}", stacklevel=2)


def _refusal(error: Exception) -> RequestError:
    """Returns why a cut is not taken; a full disk is no unforeseen error."""
    if isinstance(error, OSError) and error.strerror:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        code = Code.RESOURCE_EXHAUSTED if full else Code.INTERNAL
        where = f": {error.filename}" if error.filename else ""
        return RequestError(code, f"{error.strerror}{where}")
    return as_request_error(error)
