"""One checkpoint that several ranks write into one directory.

Each rank writes its part in a thread. After each step the training threads exchange the progress of
these threads (`report`, `receive`), because only training threads call collectives. When all parts
are written, a thread of rank 0 writes the manifest. When all ranks have received that, the
checkpoint is complete.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from hotrow.errors import HotrowError, ResourceExhaustedError
from hotrow.hashed_file import FileFacts
from hotrow.ops.ranks import Ranks
from hotrow.sealed_directory import read_manifest, remove_leftovers, seal_of, sealing
from hotrow.trainer.agreement import agreed, error_of, error_report, gathered, of_first
from hotrow.trainer.checkpoint import stored
from hotrow.trainer.checkpoint.directory import CheckpointDirectory
from hotrow.trainer.checkpoint.outcome import (
    EXPECTED,
    AbandonedError,
    Outcome,
    as_failure,
    no_room,
)
from hotrow.trainer.checkpoint.parts import nonfinite_rows
from hotrow.trainer.checkpoint.snapshot import TrainingSnapshot

Result = TypeVar("Result")

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.01, 1.0

# Fields of a rank's report.
_WRITING, _WRITTEN, _FAILED, _SEALING, _SEALED = range(5)


class SharedWrite:
    """A checkpoint that several ranks are writing, on one of them.

    Attributes:
        step: step of the checkpoint.
        chain: name and seal of each checkpoint that it builds on.
        last: whether it is the last of the run.
        over: whether all ranks have received that it is written, or has failed.
        failure: why it failed, once it is over; None: it did not.
        seal: seal of the manifest, once it is over.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        take: Callable[[], TrainingSnapshot],
        step: int,
        chain: list[tuple[str, str]],
        keeps: bool,
        last: bool,
        ranks: Ranks,
    ) -> None:
        """Takes the snapshot and starts to write. A collective.

        Args:
            directory: the run's checkpoints.
            take: takes the snapshot of this rank.
            step: step of the checkpoint.
            chain: name and seal of each checkpoint that it builds on.
            keeps: whether the next increment is relative to it.
            last: whether it is the last of the run.
            ranks: the ranks that write it.

        Raises:
            HotrowError: a rank cannot take its snapshot, or the disk has no room or refuses; raised
                on all ranks.
        """
        self.step = step
        self.chain = chain
        self.last = last
        self.over = False
        self.failure: HotrowError | None = None
        self._given_up = False
        self.seal = ""
        self._begin = time.monotonic()
        self._directory = directory
        self._keeps = keeps
        self._ranks = ranks
        self._abandoned = threading.Event()
        self._facts: dict[str, Any] = {}
        self._hashed: dict[str, FileFacts] = {}
        self._parts: list[Any] = [None] * ranks.size
        self._place = Path()  # on rank 0: the unfinished directory
        self._open = contextlib.ExitStack()  # on rank 0: closing it seals the directory
        self._state = _WRITING
        self._sent_part = False
        self._error: BaseException | None = None
        self._own_part: dict[str, Any] = {}
        self._bytes = 0
        self._nonfinite_rows: dict[str, int] = {}
        self._snapshot: TrainingSnapshot | None = None
        try:
            snapshot = agreed(ranks, "snapshot", lambda: self._take(take))
            self._position, self._kind = snapshot.position, snapshot.kind
            needed = sum(gathered(ranks, "checkpoint's size", snapshot.bytes_needed))
            agreed(ranks, "checkpoint's directory", lambda: self._make_directory(needed))
            path = of_first(ranks, "checkpoint's directory", str(self._place))
        except BaseException:
            self._give_up()
            raise
        self._start(_WRITING, lambda: self._write_part(Path(path)))
        self._stall = time.monotonic() - self._begin

    # --- methods of the training threads ---

    def report(self) -> dict[str, Any]:
        """Returns this rank's report to the others, as a JSON value."""
        state = self._state
        report: dict[str, Any] = {"state": state}
        if state == _WRITTEN and not self._sent_part:
            report["part"] = self._own_part
            self._sent_part = True
        if state == _FAILED and isinstance(self._error, EXPECTED):
            report["error"] = error_report(as_failure(self._error))
        if state == _SEALED:
            report |= {"seal": self.seal, "bytes": self._bytes}
        return report

    def receive(self, reports: list[dict[str, Any]]) -> None:
        """Receives the reports of all ranks, and starts the next stage when they are ready for it.

        Raises:
            Exception: an unexpected error that ended the write on this rank.
        """
        if self.over:
            return
        for rank, one in enumerate(reports):
            if "part" in one:
                self._parts[rank] = one["part"]
        states = [one["state"] for one in reports]
        if _FAILED in states:
            self._abandoned.set()  # the others need not finish
            if _WRITING not in states and _SEALING not in states:
                self._end(self._first_failure(reports))
        elif states[0] == _SEALED:
            self.seal, self._bytes = reports[0]["seal"], reports[0]["bytes"]
            self._end(None)
        elif all(state == _WRITTEN for state in states) and self._ranks.is_first:
            self._start(_SEALING, self._write_manifest)

    def wait(self) -> None:
        """Returns when the write is over. A collective."""
        seconds = _FIRST_WAIT_SECONDS
        while not self.over:
            self._thread.join(seconds)
            seconds = min(2 * seconds, _LONGEST_WAIT_SECONDS)
            self.receive(gathered(self._ranks, "checkpoint", self.report()))

    def close(self, abandon: bool) -> None:
        """Abandons the write on this rank, which ends; not a collective."""
        self._abandoned.set()
        self._thread.join()
        if not self.over:
            self._given_up = True
            self._end(HotrowError("given up"))

    def outcome(self, waited: float) -> Outcome | None:
        """Returns the outcome of the write once it is over; None: it was abandoned."""
        if self._given_up:
            return None
        assert self._snapshot is not None
        seconds = time.monotonic() - self._begin
        stall = self._stall + waited + self._snapshot.waited_seconds
        return Outcome(
            self._position,
            self._kind,
            self._bytes,
            seconds,
            stall,
            self.failure,
            self._nonfinite_rows,
        )

    def _end(self, failure: HotrowError | None) -> None:
        self.over, self.failure = True, failure
        self._thread.join()
        assert self._snapshot is not None
        if failure is None and self._keeps:
            self._snapshot.keep()
        self._snapshot.close()
        if failure is not None:
            self._discard()
        elif self._ranks.is_first:
            self._directory.prune(self.step)
        if self._error is not None and not isinstance(self._error, (*EXPECTED, AbandonedError)):
            raise self._error

    def _give_up(self) -> None:
        """Reverts the start of the write; closing the directory would seal an empty checkpoint."""
        if self._snapshot is not None:
            self._snapshot.close()
        self._discard()

    def _discard(self) -> None:
        """Removes the unfinished directory; no rank writes to it any more."""
        with contextlib.suppress(AbandonedError), self._open:
            raise AbandonedError

    def _first_failure(self, reports: list[dict[str, Any]]) -> HotrowError:
        for rank, one in enumerate(reports):
            if one.get("error") is not None:
                return error_of(one["error"], "" if rank == 0 else f"rank {rank}: ")
        return HotrowError("a rank gave up")

    def _take(self, take: Callable[[], TrainingSnapshot]) -> TrainingSnapshot:
        snapshot = _expecting(take)
        self._snapshot = snapshot  # set first: it is closed even if another rank's fails
        return snapshot

    def _make_directory(self, needed: int) -> None:
        if self._ranks.is_first:
            _expecting(lambda: self._open_directory(needed))

    def _open_directory(self, needed: int) -> None:
        path = self._directory.path
        path.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        free = shutil.disk_usage(path).free
        if needed > free:
            raise ResourceExhaustedError(no_room(needed, free, path))
        # An existing one is damaged; otherwise this run would not be at this step again.
        final = self._directory.of_step(self.step)
        self._facts |= {
            "base": self.chain[0][0] if self.chain else final.name,
            "parents": [name for name, _ in self.chain],
            "parent_seals": [seal for _, seal in self.chain],
        }
        opened = sealing(final, self._facts, self._hashed, replace=True)
        self._place = self._open.enter_context(opened)
        (self._place / stored.TABLES).mkdir()

    # --- methods of the writing threads ---

    def _start(self, state: int, work: Callable[[], None]) -> None:
        self._state = state
        self._thread = threading.Thread(
            target=self._run, args=(work,), name="checkpoint", daemon=True
        )
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as err:
            self._error = err
            self._state = _FAILED

    def _write_part(self, place: Path) -> None:
        assert self._snapshot is not None
        hashed: dict[str, FileFacts] = {}
        entries = self._snapshot.write(place, hashed, self._check)
        self._own_part = {"entries": entries, "hashed": hashed}
        self._state = _WRITTEN

    def _write_manifest(self) -> None:
        assert self._snapshot is not None
        for part in self._parts:
            self._hashed |= part["hashed"]
        self._facts |= self._snapshot.facts([part["entries"] for part in self._parts])
        self._open.close()  # seals the directory
        manifest = read_manifest(self._directory.of_step(self.step))
        self.seal = seal_of(manifest)
        self._bytes = sum(file["bytes"] for file in manifest["files"].values())
        self._nonfinite_rows = nonfinite_rows(manifest["tables"])
        self._state = _SEALED

    def _check(self) -> None:
        if self._abandoned.is_set():
            raise AbandonedError


def _expecting(work: Callable[[], Result]) -> Result:
    """Returns the result of `work`; turns an expected failure into an error to report."""
    try:
        return work()
    except EXPECTED as err:
        raise as_failure(err) from err
